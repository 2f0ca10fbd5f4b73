"""Runs leave torch's number of threads as they found it."""

import threading

import torch

from facade.learning.torch_threads import one_intra_op_thread


def test_where_runs_overlap_torch_ends_with_the_threads_it_had():
    before = torch.get_num_threads()
    entered, leave, after = threading.Event(), threading.Event(), []

    def second():
        with one_intra_op_thread():
            entered.set()
            leave.wait(30)
        after.append(torch.get_num_threads())

    thread = threading.Thread(target=second)
    try:
        torch.set_num_threads(3)
        with one_intra_op_thread():
            thread.start()
            assert entered.wait(30)
            with one_intra_op_thread():
                assert torch.get_num_threads() == 1
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
        leave.set()
        thread.join()
        assert after == [3]
    finally:
        torch.set_num_threads(before)
