import signal
import threading

import pytest

from facade.bell import Bell


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_is_noted_and_the_second_does_not_wait(number):
    bell, told = Bell(), []
    before = signal.getsignal(number)
    with bell.listening(told.append):
        assert bell.rung is None
        signal.raise_signal(number)
        assert bell.rung == number
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert told == [number], "whoever is told is told once"
    assert signal.getsignal(number) is before


def test_nohup_keeps_a_closed_terminal_away():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Bell().listening() as bell:
            signal.raise_signal(signal.SIGHUP)
        assert bell.rung is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_in_another_thread_nothing_rings():
    bell, handlers = Bell(), []
    before = signal.getsignal(signal.SIGINT)

    def listen():
        with bell.listening():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert handlers == [before]
