"""A real SLURM cluster of several nodes on this one machine, for tests: no systemd, no cgroups, ports of its own.

All nodes have this machine's host name; SLURMD_NODENAME tells them apart. There are two leaf switches under a spine, and two kinds of nodes by feature. Jobs of the
partition `urgent` put those of `main` back into the queue, after a grace time.
"""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

NEEDED = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "scontrol", "squeue")

CONFIGURATION = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={base}/munge/munge.socket,cred_expire=5
CredType=cred/munge
SlurmctldPort={controller}
SlurmdPort={ports[0]}
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool/%n
SlurmctldPidFile={base}/slurmctld.pid
SlurmdPidFile={base}/slurmd-%n.pid
SlurmctldLogFile={base}/log/slurmctld.log
SlurmdLogFile={base}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0
TopologyPlugin=topology/tree
ReturnToService=2
SlurmdParameters=config_overrides
SlurmdTimeout=10
MessageTimeout=30
KillWait=10
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{nodes}
PartitionName=main Nodes=n[1-{count}] Default=YES MaxTime=INFINITE DefaultTime=10 PriorityTier=1 PreemptMode=REQUEUE GraceTime=30 State=UP
PartitionName=urgent Nodes=n[1-{count}] MaxTime=INFINITE DefaultTime=10 PriorityTier=10 PreemptMode=OFF State=UP
"""


def missing():
    """What is not installed, or why there can be no cluster."""
    where = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    absent = [name for name in NEEDED if shutil.which(name, path=where) is None]
    if absent:
        return "found no " + ", ".join(absent)
    return "" if os.geteuid() == 0 else "SLURM's daemons need root"


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class SlurmCluster:
    def __init__(self, base, nodes=4, cpus=4):
        self.base = pathlib.Path(base)
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self.cpus = cpus
        self.environment = dict(os.environ, SLURM_CONF=str(self.base / "slurm.conf"))
        self.environment["PATH"] += ":/usr/sbin:/sbin"

    def start(self):
        for name in ("state", "log", "spool", "munge"):
            (self.base / name).mkdir()
        self.base.chmod(0o755)
        (self.base / "munge").chmod(0o755)
        key = self.base / "munge/munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        munge = self.base / "munge"
        self.run("munged", f"--key-file={key}", f"--socket={munge}/munge.socket", "--force", f"--pid-file={munge}/munged.pid",
                 f"--log-file={self.base}/log/munged.log", f"--seed-file={munge}/munge.seed")
        controller, *ports = free_ports(1 + len(self.nodes))
        lines = [f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs={self.cpus} Sockets=1 "
                 f"CoresPerSocket={self.cpus} ThreadsPerCore=1 RealMemory=2000 Feature={'first' if number < 2 else 'second'} State=UNKNOWN"
                 for number, (node, port) in enumerate(zip(self.nodes, ports))]
        (self.base / "slurm.conf").write_text(CONFIGURATION.format(
            base=self.base, controller=controller, ports=ports, nodes="\n".join(lines), count=len(self.nodes)))
        half = max(1, len(self.nodes) // 2)
        (self.base / "topology.conf").write_text(
            f"SwitchName=leaf1 Nodes=n[1-{half}]\nSwitchName=leaf2 Nodes=n[{half + 1}-{len(self.nodes)}]\n"
            "SwitchName=spine Switches=leaf[1-2]\n")
        self.run("slurmctld", "-c")
        for node in self.nodes:
            (self.base / "spool" / node).mkdir()
            self.run("slurmd", "-N", node)

    def run(self, *command, check=True):
        """What it says."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=120)
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        return done.stdout

    def idle(self):
        return [line.split()[0] for line in self.run("sinfo", "-h", "-p", "main", "-N", "-o", "%N %t", check=False).splitlines()
                if line.split()[1] == "idle"]

    def state(self, job):
        """As squeue and scontrol call it; empty once SLURM has forgotten the job."""
        said = self.run("scontrol", "-o", "show", "job", str(job), check=False)
        return next((word[9:] for word in said.split() if word.startswith("JobState=")), "")

    def pid(self, node):
        """Of the node's daemon."""
        return int((self.base / f"slurmd-{node}.pid").read_text())

    def log(self):
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in sorted((self.base / "log").glob("*.log")))

    def stop(self):
        self.run("scancel", "--user=root", check=False)
        # Steps that still run end with their job, or with us.
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and self.run("squeue", "-h", check=False).strip():
            pass
        pids = [path for path in (*self.base.glob("slurmd-*.pid"), self.base / "slurmctld.pid", self.base / "munge/munged.pid")]
        for path in pids:
            try:
                os.kill(int(path.read_text()), signal.SIGTERM)
            except (OSError, ValueError):
                pass  # it has ended before
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and f"SLURM_CONF={self.base}/".encode() in (entry / "environ").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                pass
