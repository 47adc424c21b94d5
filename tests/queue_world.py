"""A real pueue daemon and a real Slurm cluster on this machine, each in a folder of its own, to be killed and
restarted.

`missing(backend)` says exactly what the machine lacks.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from projected_grpo.queue.backends import Pueue, Slurm

TOOLS = {"pueue": ("pueue", "pueued"), "slurm": ("munged", "slurmctld", "slurmd", "sbatch", "squeue")}


def missing(backend):
    """What this machine lacks for a queue."""
    root = ["root (slurmd and munged are started without systemd)"] if backend == "slurm" and os.geteuid() else []
    return [*(tool for tool in TOOLS[backend] if not which(tool)), *root]


def which(tool):
    """Daemons live in sbin, which is not on every PATH."""
    return shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")


def wait_until(what, holds, seconds=240):
    """Poll until it holds; AssertionError naming it after a while."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.1)


def output(*command):
    """What a client prints; None when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode else done.stdout.strip()


class PueueWorld:
    """pueued with its own socket, state and configuration."""

    backend = Pueue("test", 2)

    def __init__(self, folder, monkeypatch):
        for variable, part in (("XDG_RUNTIME_DIR", "run"), ("XDG_DATA_HOME", "data"), ("XDG_CONFIG_HOME", "config")):
            (folder / part).mkdir(parents=True, exist_ok=True)
            monkeypatch.setenv(variable, str(folder / part))
        self.start()

    def start(self):
        self.daemon = subprocess.Popen(["pueued"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until("pueued answers", lambda: output("pueue", "status") is not None)

    def kill_daemon(self):
        """As a machine that runs out of memory would."""
        self.daemon.send_signal(signal.SIGKILL)
        self.daemon.wait()

    def close(self):
        output("pueue", "kill", "--all")
        self.kill_daemon()


SLURM_CONF = """
ClusterName=world
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,sched_min_interval=0
ReturnToService=2
SwitchType=switch/none
SlurmctldPort={ctld}
SlurmdPort={slurmd}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdSpoolDir={folder}/spool
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class SlurmWorld:
    """munged, slurmctld and slurmd of one node, run as root without systemd."""

    backend = Slurm()
    saves_every = 5.5
    """Seconds. slurmctld writes what has changed within 5; killed sooner, it forgets the newest jobs, or that they
    have begun, and drains their nodes."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        for part in ("spool", "state"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        conf = SLURM_CONF.format(host=socket.gethostname(), folder=folder, ctld=free_port(), slurmd=free_port())
        (folder / "slurm.conf").write_text(conf)
        (folder / "munge.key").write_bytes(os.urandom(1024))
        (folder / "munge.key").chmod(0o400)
        monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        place = f"--socket={folder}/munge.socket"
        files = [f"--{what}-file={folder}/munge.{what}" for what in ("key", "pid", "log", "seed")]
        self.munged = self.run("munged", "--foreground", "--force", place, *files)
        wait_until("munged has its socket", (folder / "munge.socket").exists)
        self.start()
        self.slurmd = self.run("slurmd", "-D", "-N", socket.gethostname())
        wait_until("the node is idle", lambda: output("sinfo", "--noheader", "--format=%T") == "idle")

    def run(self, tool, *args):
        with (self.folder / f"{tool}.out").open("ab") as out:
            return subprocess.Popen([which(tool), *args], stdout=out, stderr=out)

    def start(self):
        self.controller = self.run("slurmctld", "-D")
        wait_until("slurmctld answers", lambda: output("squeue") is not None)

    def kill_daemon(self):
        """As soon as all that it knows is on its disk."""
        known, since = "", time.monotonic()
        while time.monotonic() - since < self.saves_every:
            if known != (known := output("squeue", "--noheader", "--format=%i %T")):
                since = time.monotonic()
            time.sleep(0.1)
        self.controller.send_signal(signal.SIGKILL)
        self.controller.wait()

    def close(self):
        output("scancel", f"--user={os.getuid()}")
        with contextlib.suppress(AssertionError):
            wait_until("jobs are gone", lambda: not output("squeue", "--noheader"), 20)
        for process in (self.slurmd, self.controller, self.munged):
            process.terminate()
            process.wait()


WORLDS = {"pueue": PueueWorld, "slurm": SlurmWorld}


def processes_with(word):
    """Ids of the processes whose command line has the word, newest last."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return sorted(found)
