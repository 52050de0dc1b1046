"""TensorFlow's ParameterServerStrategy: one server, workers in processes of their own. Each step reads the variable on a
worker, makes a dense gradient there, and subtracts it on the server.

    tensorflow_ps.py --elements 25000000 --seconds 3 --workers 2
"""

import argparse
import json
import os
import subprocess
import sys
import time

from child import end_with_parent, free_ports, report

STEPS_OF_A_TRIAL = 4


def start_servers(options: argparse.Namespace, cluster: dict[str, list[str]]) -> list[subprocess.Popen]:
    names = [("ps", 0)] + [("worker", number) for number in range(options.workers)]
    return [subprocess.Popen([sys.executable, __file__, "--role", role, "--number", str(number), "--cluster",
                              json.dumps(cluster)], preexec_fn=end_with_parent) for role, number in names]


def serve(options: argparse.Namespace) -> None:
    import tensorflow as tf
    cluster = json.loads(options.cluster)
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=2,
                                      inter_op_parallelism_threads=max(4, len(cluster["worker"]) + 1))
    tf.distribute.Server(tf.train.ClusterSpec(cluster), job_name=options.role, task_index=options.number,
                         protocol="grpc", start=True, config=config).join()


def measure(options: argparse.Namespace, cluster: dict[str, list[str]]) -> float:
    import tensorflow as tf
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster), rpc_layer="grpc", task_type="chief", task_id=0)
    strategy = tf.distribute.experimental.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = tf.Variable(tf.ones([options.elements]))

    @tf.function
    def step():
        pulled = weights.read_value()
        # Depends on the pulled weights, so that they must have arrived.
        gradient = tf.ones([options.elements]) + 0.0 * pulled[:1]
        with tf.control_dependencies([tf.identity(pulled)]):
            weights.assign_sub(1e-6 * gradient)
        return pulled[0]

    def steps(count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            coordinator.schedule(step)
        coordinator.join()
        return time.perf_counter() - begin

    steps(2 * options.workers)
    count = max(STEPS_OF_A_TRIAL, int(options.seconds * STEPS_OF_A_TRIAL / steps(STEPS_OF_A_TRIAL)))
    return count / steps(count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=25_000_000)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--role", choices=["chief", "ps", "worker"], default="chief", help="set by the chief")
    parser.add_argument("--number", type=int, default=0, help="set by the chief")
    parser.add_argument("--cluster", default="", help="set by the chief")
    options = parser.parse_args()
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", GRPC_FAIL_FAST="use_caller")
    if options.role != "chief":
        return serve(options)
    ports = iter(free_ports(options.workers + 2))
    cluster = {role: [f"127.0.0.1:{next(ports)}" for _ in range(count)]
               for role, count in (("chief", 1), ("ps", 1), ("worker", options.workers))}
    servers = start_servers(options, cluster)
    try:
        report("TensorFlow ParameterServerStrategy", workers=options.workers, rounds_per_s=measure(options, cluster))
    finally:
        for server in servers:
            server.kill()
        # Its threads wait for the servers; there is nothing left to tidy.
        os._exit(0)


if __name__ == "__main__":
    main()
