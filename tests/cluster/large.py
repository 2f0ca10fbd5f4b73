"""A model of 8 MB that is nevertheless quick to train."""

from torch import nn


class Large(nn.Sequential):
    def __init__(self, shape, classes):
        super().__init__(nn.Flatten(), nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 2048), nn.ReLU())
        self.add_module("head", nn.Linear(2048, classes))
