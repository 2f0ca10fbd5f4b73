"""A model of 1 MB that is nevertheless quick to train."""

from torch import nn


class Large(nn.Sequential):
    def __init__(self, shape, classes):
        super().__init__(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1024), nn.ReLU())
        self.add_module("head", nn.Linear(1024, classes))
