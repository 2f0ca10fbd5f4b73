"""A run on a cluster of three machines (raylets of their own), one of which is killed on the way.

python lost_machine.py EXPERIMENT.toml RUN_DIRECTORY
"""

import os
import signal
import sys
import warnings
from pathlib import Path

os.environ |= {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "for-this-test",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "2",
}
sys.path.insert(0, str(Path(__file__).parent.parent))

from ray.cluster_utils import Cluster

from facade import Experiment
from facade.runtimes.ray.cluster import run
from runs import At


def main(file, out):
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    victim, _ = (cluster.add_node(num_cpus=1) for _ in range(2))
    cluster.wait_for_nodes()

    def kill():
        os.kill(victim.all_processes["raylet"][0].process.pid, signal.SIGKILL)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = run(Experiment.load(file), out, progress=At(7, kill), address=cluster.address)
    cluster.shutdown()
    for warning in said:
        print("warning", warning.message)
    print("state", result.summary["state_sha256"])


if __name__ == "__main__":
    main(*sys.argv[1:])
