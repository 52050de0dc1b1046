"""MXNet's `dist_async` key-value store, which is ps-lite inside: one server that takes SGD steps, one worker or more.

    mxnet_kvstore.py --elements 25000000 --seconds 3 --workers 1
"""

import argparse
import os
import subprocess
import sys

from child import end_with_parent, free_ports, rate, report


def work(options: argparse.Namespace) -> None:
    import mxnet
    store = mxnet.kv.create("dist_async")
    weights, gradient = mxnet.nd.ones(options.elements), mxnet.nd.full(options.elements, 0.5)
    if store.rank == 0:
        store.set_optimizer(mxnet.optimizer.SGD(learning_rate=1e-6))
    store.init(0, weights)

    def exchange() -> None:
        store.push(0, gradient)
        store.pull(0, out=weights)
        weights.wait_to_read()

    per_s = rate(options.seconds, exchange)
    print(f"rounds_per_s={per_s}", flush=True)


def start(role: str, port: int, options: argparse.Namespace) -> subprocess.Popen:
    environment = dict(os.environ, DMLC_ROLE=role, DMLC_PS_ROOT_URI="127.0.0.1", DMLC_PS_ROOT_PORT=str(port),
                       DMLC_NUM_SERVER="1", DMLC_NUM_WORKER=str(options.workers), OMP_NUM_THREADS="2")
    # In these two roles importing MXNet serves until the end.
    command = ([sys.executable, *sys.argv, "--role", "worker"] if role == "worker"
               else [sys.executable, "-c", "import mxnet"])
    return subprocess.Popen(command, env=environment, preexec_fn=end_with_parent, text=True,
                            stdout=subprocess.PIPE if role == "worker" else subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=25_000_000)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--role", choices=["runner", "worker"], default="runner", help="set by the runner")
    options = parser.parse_args()
    if options.role == "worker":
        return work(options)
    port = free_ports(1)[0]
    others = [start(role, port, options) for role in ("scheduler", "server")]
    workers = [start("worker", port, options) for _ in range(options.workers)]
    try:
        printed = [worker.communicate()[0] for worker in workers]
        rates = [float(text.split("rounds_per_s=")[1].split()[0]) for text in printed if "rounds_per_s=" in text]
        if len(rates) != options.workers:
            sys.exit(f"{options.workers - len(rates)} of {options.workers} workers ended without a figure")
        report("MXNet dist_async (ps-lite)", workers=options.workers, rounds_per_s=sum(rates))
    finally:
        for other in others:
            other.kill()


if __name__ == "__main__":
    main()
