import signal
import threading

import pytest

from facade.runs.stop_signals import StopSignals


@pytest.fixture
def hang_up():
    """Sets what a closed terminal does; whoever started the tests may have set it, as nohup does."""
    before = signal.getsignal(signal.SIGHUP)
    yield lambda handler: signal.signal(signal.SIGHUP, handler)
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_is_noted_and_the_second_does_not_wait(number, hang_up):
    hang_up(signal.SIG_DFL)
    stop_signals, told = StopSignals(), []
    before = signal.getsignal(number)
    with stop_signals.listening(told.append):
        assert stop_signals.received is None
        signal.raise_signal(number)
        assert stop_signals.received == number
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert told == [number], "whoever is told is told once"
    assert signal.getsignal(number) is before


def test_nohup_keeps_a_closed_terminal_away(hang_up):
    hang_up(signal.SIG_IGN)
    with StopSignals().listening() as stop_signals:
        signal.raise_signal(signal.SIGHUP)
    assert stop_signals.received is None


def test_in_another_thread_nothing_rings():
    stop_signals, handlers = StopSignals(), []
    before = signal.getsignal(signal.SIGINT)

    def listen():
        with stop_signals.listening():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert handlers == [before]
