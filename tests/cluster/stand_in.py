"""A stand-in for Ray: its actors live in this process, on machines that can be lost and are missed late.

It has no clock: a moment passes whenever somebody waits for what is not there, or asks somebody who
cannot be reached.
"""

import functools
import types
from types import SimpleNamespace


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


class ActorUnavailableError(RayError):
    pass


class ActorDiedError(RayError):
    pass


EXCEPTIONS = types.ModuleType("ray.exceptions")
EXCEPTIONS.__dict__.update(
    {kind.__name__: kind for kind in (RayError, RayTaskError, ActorUnavailableError, ActorDiedError)}
)


class Ref:
    """What a call gives, now or never."""

    def __init__(self, value=None, error=None, pending=None):
        self.value, self.error, self.pending = value, error, pending


class Machine:
    def __init__(self, cpus):
        self.cpus, self.held = cpus, 0.0
        self.lost, self.missed = False, False
        """Gone, and known to be."""


class Actor:
    """A handle. What it is asked before it has a place waits until it has one."""

    def __init__(self, ray, kind, cpus):
        self._ray, self._cpus = ray, cpus
        self._self, self._machine, self._dead = kind(), None, False
        self._find_a_place()

    def _find_a_place(self):
        free = [m for m in self._ray.machines if not m.missed and m.cpus - m.held >= self._cpus]
        if self._machine is None and free:
            self._machine = min(free, key=lambda machine: machine.held)
            self._machine.held += self._cpus
            self._began = not self._machine.lost  # nobody starts on a machine that is gone

    def __getattr__(self, method):
        return SimpleNamespace(remote=functools.partial(self._call, method))

    def _call(self, method, *arguments):
        if self._machine is None or not self._began:
            self._find_a_place()
            if self._machine is None or not self._began:
                return Ref(pending=functools.partial(self._call, method, *arguments))
        if self._dead or self._machine.missed:
            return Ref(error=ActorDiedError("it is gone"))
        if self._machine.lost:
            self._ray.moment()
            return Ref(error=ActorUnavailableError("it does not answer"))
        if method == "__ray_ready__":
            return Ref()
        given = [argument.value if isinstance(argument, Ref) else argument for argument in arguments]
        try:
            return Ref(getattr(self._self, method)(*given))
        except Exception as error:
            return Ref(error=RayTaskError(error))

    def die(self):
        if self._machine is not None and not self._dead:
            self._machine.held -= self._cpus
        self._dead = True


class StandIn:
    """The module `ray`, as far as a run uses it."""

    exceptions = EXCEPTIONS

    def __init__(self, *cpus):
        self.machines = [Machine(each) for each in cpus]
        self.actors = []
        self.moments = 0
        self.at = {}
        """What happens at a moment."""

    def moment(self):
        self.moments += 1
        self.at.get(self.moments, lambda: None)()

    def lose(self, machine, missed_after):
        """A machine is gone; Ray misses it some moments later."""
        machine.lost = True
        self.at[self.moments + missed_after] = lambda: setattr(machine, "missed", True)

    def nodes(self):
        return [
            {"NodeID": f"machine {number}", "Alive": not machine.missed, "Resources": {"CPU": machine.cpus}}
            for number, machine in enumerate(self.machines)
        ]

    def available_resources(self):
        return {"CPU": sum(machine.cpus - machine.held for machine in self.machines)}

    def remote(self, kind):
        def started(cpus):
            actor = Actor(self, kind, cpus)
            self.actors.append(actor)
            return actor

        return SimpleNamespace(options=lambda num_cpus, **_: SimpleNamespace(remote=lambda: started(num_cpus)))

    def put(self, value):
        return Ref(value)

    def wait(self, refs, num_returns, timeout):
        for ref in refs:
            if ref.pending is not None:
                ref.__dict__.update(ref.pending().__dict__)
        waiting = [ref for ref in refs if ref.pending is not None]
        if waiting:
            self.moment()
        return [ref for ref in refs if ref.pending is None], waiting

    def get(self, refs):
        if isinstance(refs, list):
            return [self.get(ref) for ref in refs]
        assert refs.pending is None, "this would never end"
        if refs.error is not None:
            raise refs.error
        return refs.value

    def kill(self, actor):
        actor.die()
