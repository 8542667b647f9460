#!/usr/bin/env bash
# slurm-here.sh FOLDER COMMAND..: Slurm on this machine for as long as COMMAND runs: two nodes of two
# processors, node1 and node2, which share the disk. For trials and tests of batch scripts; needs root and
# Debian's slurm-wlm. Everything has a network, names and processes of its own, so nothing is left of it.
# FOLDER must be empty or missing. Exit code 64: usage; 69: the kernel refuses; 72: a program is missing; else COMMAND's.
set -eu

if [ "${1:-}" != --inside ]; then
  [ $# -ge 2 ] || {
    sed -n '2,5s/^# //p' "$0" >&2
    exit 64
  }
  for program in slurmctld slurmd srun sbatch unshare ip; do
    PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null || {
      echo "slurm-here.sh: no $program here" >&2
      exit 72
    }
  done
  folders="--mount --net --uts --pid --fork --kill-child --mount-proc"
  # shellcheck disable=SC2086
  unshare $folders true 2>/dev/null || {
    echo "slurm-here.sh: namespaces are refused; it needs root" >&2
    exit 69
  }
  mkdir -p "$1"
  # shellcheck disable=SC2086
  exec unshare $folders bash "$0" --inside "$(cd "$1" && pwd)" "${@:2}"
fi

dir=$2
shift 2
PATH=$PATH:/usr/sbin:/sbin
mount --make-rprivate /
# Sockets, whose paths must be short, and for each node its temporary folder: PMIx's of one step have one name.
mount -t tmpfs tmpfs /run
mkdir -p /run/state /run/node1/tmp /run/node2/tmp

# The nodes are hosts for MPI too: each has a name, an address and an end of one cable.
printf '127.0.0.1 localhost\n10.0.0.1 node1\n10.0.0.2 node2\n' >"$dir/hosts"
mount --bind "$dir/hosts" /etc/hosts
hostname node1
ip netns add node2
ip link add eth0 type veth peer name eth0 netns node2
attach() { # ADDRESS COMMAND..
  "${@:2}" ip address add "$1/24" dev eth0
  "${@:2}" ip link set eth0 up
  "${@:2}" ip link set lo up
}
attach 10.0.0.1
attach 10.0.0.2 ip netns exec node2

# Without munge: nobody else is in here. Requeued jobs wait for cred_expire seconds.
cat >"$dir/slurm.conf" <<END
ClusterName=here
SlurmctldHost=node1(10.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
StateSaveLocation=/run/state
SlurmdSpoolDir=/run/%n
TmpFS=/run/%n/tmp
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
NodeName=node1 NodeAddr=10.0.0.1 CPUs=2 State=UNKNOWN
NodeName=node2 NodeAddr=10.0.0.2 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n' >"$dir/cgroup.conf"
export SLURM_CONF=$dir/slurm.conf
slurmctld -D >"$dir/slurmctld.log" 2>&1 &
slurmd -D -N node1 >"$dir/node1.log" 2>&1 &
ip netns exec node2 unshare --uts sh -c 'hostname node2; exec slurmd -D -N node2' >"$dir/node2.log" 2>&1 &

idle() { timeout 5 sinfo -h -N -o %t 2>/dev/null | grep -c '^idle$'; }
tries=0
until [ "$(idle)" = 2 ]; do
  tries=$((tries + 1))
  [ "$tries" -lt 60 ] || {
    tail -n 5 "$dir"/*.log >&2
    echo "slurm-here.sh: the nodes do not come up" >&2
    exit 1
  }
  sleep 0.5
done
# The daemons end with this shell, which is the first process in here.
"$@"
