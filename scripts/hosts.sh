#!/usr/bin/env bash
# hosts.sh N MBIT COMMAND..: runs a command beside N hosts (1 to 250) whose network passes MBIT
# Mbit/s each way. With `mpirun` as the command this is a real run on several machines, as far as
# MPI can tell:
#
#     scripts/hosts.sh 4 250 mpirun --host host1:2,host2:2 -n 4 target/release/runner plan.json
#     scripts/hosts.sh 4 250 bash     # to look around; `exit` removes the hosts
#
# A host is a network and a UTS namespace: own interfaces, loopback and name. It has eth0
# (10.77.0.I, limited) for MPI's messages, and eth1 (10.78.0.I, not limited) for the launcher's, so
# that what is counted on eth0 is what MPI sent. Cores, memory and files are those of the machine.
#
#                                     host1                  host2        ..
#   COMMAND (mpirun) --- br-control --- eth1                   eth1
#                        br-data ------ eth0 [tbf]             eth0 [tbf]     limits what it sends
#                            `-- [tbf] port1   `-- [tbf] port2                and what it receives
#
# The command finds two more on its PATH:
#   on HOST COMMAND..   what ssh is to real machines; mpirun starts its daemons with it
#   wire                a line for each host: name, bytes sent, bytes received, packets dropped;
#                       Ethernet frames at eth0 since the beginning, all headers counted
# Its temporary folder (TMPDIR) and /dev/shm are empty and end with it.
#
# Nothing is left behind, however it ends: everything is in namespaces of this call alone, with a
# PID namespace around them. The kernel ends its processes with the first of them, and removes
# interfaces and mounts with the last. So calls do not see each other, and there is no `down`.
#
# Needs iproute2 and from the kernel: veth, bridge, tbf, and either root or user namespaces (the
# caller is root in one). Kernels of containers often refuse; `docker run --privileged` allows it.
# No delays: many kernels that have all the rest lack `netem`.
# Exit code 64: usage; 69: the kernel refuses; 72: a program is missing; else the command's.
set -eu
PATH=$PATH:/usr/sbin:/sbin # where Debian keeps ip and tc, not on a user's PATH

readonly data=10.77.0 control=10.78.0
# Jumbo frames, as networks of clusters have them: with frames of 1500 bytes the kernel's work for so many
# of them took half of two cores at 4 x 250 Mbit/s, and was what limited the network.
readonly mtu=9000

# The two ends of a cable. tbf passes a burst at any speed, so messages below its size have no
# limit: as short as the kernel's timers allow. At 100 and 250 Mbit/s TCP gets 95 % of the rate, all
# there is beside its headers, also on busy cores; at 1000 timers on busy cores come late, and 60
# to 80 % were seen.
# The queue is longer than the windows of a few TCP connections, so that frames wait instead of being
# dropped: what is sent again is counted twice and takes as long as TCP's timers say.
limit() { # MBIT
  local burst=$(($1 * 12)) # 0.1 ms
  [ "$burst" -ge 18100 ] || burst=18100 # two frames
  bucket=(tbf rate "${1}mbit" burst "$burst" latency 200ms)
}

fail() { # CODE MESSAGE
  printf 'hosts.sh: %s\n' "$2" >&2
  exit "$1"
}

# First call: enters the namespaces and starts this file anew. --kill-child: with `unshare` killed,
# the rest ends too.
enter() {
  local name message
  for name in ip tc unshare nsenter hostname; do
    command -v "$name" >/dev/null || fail 72 "no $name; \`make setup\` installs it"
  done
  local spaces=(--mount --net --uts --pid --fork --kill-child --mount-proc)
  [ "$(id -u)" = 0 ] || spaces+=(--user --map-root-user)
  message=$(unshare "${spaces[@]}" bash -eu "$0" --probe 2>&1) ||
    fail 69 "the kernel refuses: ${message:-unshare failed}"
  exec unshare "${spaces[@]}" bash "$0" --inside "$@"
}

# What the set-up below needs from the kernel, each once. What fails later is an error and no refusal.
probe() {
  mount -t tmpfs hosts /run
  : >/run/net
  unshare --net=/run/net true
  ip link add bridge type bridge
  ip link add port type veth peer name eth0
  ip link set port master bridge up
  limit 1000
  tc qdisc add dev port root "${bucket[@]}"
}

inside() {
  local hosts=$1 i
  limit "$2"
  shift 2
  # /dev/shm: MPI names its segments by host and process number, and other calls have the same.
  mount -t tmpfs hosts /run
  mount -t tmpfs hosts /dev/shm
  mkdir /run/netns /run/uts /run/bin /run/tmp
  printf '127.0.0.1 localhost\n%s front\n' "$control.254" >/run/hosts
  hostname front
  ip link set lo up
  ip link add br-data mtu "$mtu" type bridge
  ip link add br-control type bridge
  ip link set br-data up
  ip link set br-control up
  ip address add "$control.254/24" dev br-control
  for ((i = 1; i <= hosts; i++)); do add_host "$i"; done
  mount --bind /run/hosts /etc/hosts
  write_tools
  export PATH=/run/bin:$PATH TMPDIR=/run/tmp
  tell_mpi
  "$@"
}

add_host() { # NUMBER
  local name=host$1
  : >"/run/netns/$name" >"/run/uts/$name"
  unshare --net="/run/netns/$name" --uts="/run/uts/$name" hostname "$name"
  ip link add "port$1" mtu "$mtu" type veth peer name eth0 mtu "$mtu" netns "$name"
  ip link add "control$1" type veth peer name eth1 netns "$name"
  ip link set "port$1" master br-data up
  ip link set "control$1" master br-control up
  ip -n "$name" address add "$data.$1/24" dev eth0
  ip -n "$name" address add "$control.$1/24" dev eth1
  ip -n "$name" link set lo up
  ip -n "$name" link set eth0 up
  ip -n "$name" link set eth1 up
  tc qdisc add dev "port$1" root "${bucket[@]}"
  tc -n "$name" qdisc add dev eth0 root "${bucket[@]}"
  printf '%s %s\n' "$data.$1" "$name" >>/run/hosts
}

write_tools() {
  # As with ssh, the words are joined again for a shell: mpirun counts on that.
  cat >/run/bin/on <<'END'
#!/bin/sh
host=$1
shift
exec nsenter --net="/run/netns/$host" --uts="/run/uts/$host" sh -c "$*"
END
  # The qdisc counts a large segment as the frames it becomes; interfaces count it as one.
  cat >/run/bin/wire <<'END'
#!/bin/sh
for file in $(ls -v /run/netns/*); do
  host=${file##*/}
  { tc -s -n "$host" qdisc show dev eth0; tc -s qdisc show dev "port${host#host}"; } |
    awk -v host="$host" '$1 == "Sent" { bytes[n++] = $2; dropped += $7 }
      END { print host, bytes[0], bytes[1], dropped }'
done
END
  chmod +x /run/bin/*
}

# Both families of Open MPI: 4 reads OMPI_, 5 reads PRTE_ for its launcher.
tell_mpi() {
  set -a
  . "$(dirname "$0")/mpi.env"
  OMPI_MCA_plm_rsh_agent=/run/bin/on PRTE_MCA_plm_ssh_agent=/run/bin/on
  # Each host would bind its first rank to core 0: the same core, for all hosts.
  OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none
  OMPI_MCA_oob_tcp_if_include=$control.0/24 PRTE_MCA_prte_if_include=$control.0/24
  OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader,tcp OMPI_MCA_btl_tcp_if_include=$data.0/24
  # Open MPI 3's default. With the kernel's own choice, megabytes, a message of 512 KiB took 25 ms
  # at 250 Mbit/s, with this 20; the limit alone makes it 17.5.
  OMPI_MCA_btl_tcp_sndbuf=131072
  # All hosts have the same cores: who waits must not keep one from who computes.
  PIPEWRIGHT_WAIT=asleep
  set +a
}

case ${1:-} in
  --probe) probe ;;
  --inside) shift && inside "$@" ;;
  *)
    [[ ${1:-} =~ ^[1-9][0-9]{0,2}$ && $1 -le 250 && ${2:-} =~ ^[1-9][0-9]{0,5}$ && $# -ge 3 ]] ||
      fail 64 "usage: hosts.sh N MBIT COMMAND.. (1 to 250 hosts; MBIT a whole number of Mbit/s)"
    enter "$@"
    ;;
esac
