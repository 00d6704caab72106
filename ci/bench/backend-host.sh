# shellcheck shell=bash disable=SC2034,SC2154
# The machine itself: on a device that it has, or on a Soft-RoCE device that is added for the run when root may
# load the module. The command sees the machine as it is, and may change it.

host_active() { # prints "DEVICE NETDEV ADDRESS" of each usable device of the wanted kind
  local device netdev address kind wanted=1
  [[ $NIC == siw ]] && wanted=4 # RNIC, the node type of iWARP; 1 is a channel adapter
  rdma link show 2>/dev/null | sed -n 's|^link \([^ /]*\)/[0-9]* state ACTIVE .*netdev \([^ ]*\).*|\1 \2|p' |
    while read -r device netdev; do
      kind=$(cat "/sys/class/infiniband/$device/node_type" 2>/dev/null) || continue
      address=$(ip -4 -o addr show dev "$netdev" scope global | awk '{ sub("/.*", "", $4); print $4; exit }')
      if [[ ${kind%%:*} == "$wanted" && -n $address ]]; then echo "$device $netdev $address"; fi
    done
}

host_gid() { # host_gid DEVICE ADDRESS: the index of the address's own GID
  local file gid
  # shellcheck disable=SC2046
  gid=$(printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' $(tr . ' ' <<<"$2"))
  for file in "/sys/class/infiniband/$1/ports/1/gids/"*; do
    if [[ $(cat "$file" 2>/dev/null) == "$gid" ]]; then echo "${file##*/}"; return; fi
  done
  echo 0
}

host_reads() { # a device may be there and fail each request (Soft-RoCE in a network namespace): make it read
  local port=$((20000 + RANDOM % 10000)) server status=1 try
  local program=(timeout -k 1 10 ib_read_lat -d "$1" -x "$2" -s 8 -n 5 -p "$port")
  "${program[@]}" >"$run/check" 2>&1 &
  server=$!
  for ((try = 0; try < 50; try++)); do
    sleep 0.1
    if [[ -n $(ss -Htln "sport = $port") ]]; then break; fi
  done
  if "${program[@]}" "$3" >>"$run/check" 2>&1; then status=0; fi
  kill "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
  return "$status"
}

host_added=()
host_add() { # adds device number $1
  local device=rvget$1 netdev=rvgetd$1 try
  ip link add "$netdev" type dummy 2>"$run/reason" || fail "cannot add a network device: $(<"$run/reason")"
  host_added+=("$1")
  ip link set "$netdev" mtu "$MTU_A"
  ip addr add "198.18.$1.1/24" dev "$netdev"
  ip link set "$netdev" up
  rdma link add "$device" type "$NIC" netdev "$netdev" 2>"$run/reason" ||
    fail "no RDMA device here, and cannot add a software one: $(<"$run/reason")"
  for ((try = 0; try < 50; try++)); do
    if grep -qs ACTIVE "/sys/class/infiniband/$device/ports/1/state"; then return; fi
    sleep 0.1
  done
  fail "the added device $device did not become active"
}

backend_clean_up() {
  local i
  # Only now, with every holder gone: until then this would block in the kernel and could not be killed.
  for i in ${host_added[@]+"${host_added[@]}"}; do
    rdma link delete "rvget$i" 2>/dev/null || true
    ip link delete "rvgetd$i" 2>/dev/null || true
  done
}

backend_prepare() {
  local i module
  BOOT_TIMEOUT=10
  need bench ip rdma ss ib_read_lat
  ((HOSTS == 1)) || fail "one machine is one host: two need --backend uml or qemu"
  mapfile -t host_devices < <(host_active)
  if ((${#host_devices[@]} < DEVICES)); then
    ((EUID == 0)) || fail "no active RDMA device with an IPv4 address here, and only root could add a software one"
    module=rdma_rxe
    [[ $NIC == siw ]] && module=siw
    modprobe -q "$module" 2>/dev/null || true
    # Another run's devices are not for this one to use or remove.
    exec {host_lock}>"/run/lock/rvget-bench-host" && flock -n "$host_lock" || fail "another run uses the added devices"
    for ((i = 0; i < DEVICES; i++)); do host_add "$i"; done
    host_devices=()
    for ((i = 0; i < DEVICES; i++)); do host_devices+=("rvget$i rvgetd$i 198.18.$i.1"); done
  fi
  for ((i = 0; i < DEVICES; i++)); do
    read -r device netdev address <<<"${host_devices[i]}"
    host_reads "$device" "$(host_gid "$device" "$address")" "$address" || [[ $NIC == siw ]] ||
      fail "$device is there but a read over it fails: $(tail -n 2 "$run/check" | paste -sd ' ')"
  done
}

backend_mount() { :; }

backend_start() {
  local i device netdev address suffix=''
  {
    echo "export RVGET_BENCH=host RVGET_HOST=a"
    for ((i = 0; i < DEVICES; i++)); do
      read -r device netdev address <<<"${host_devices[i]}"
      echo "export RVGET_ADDR$suffix=$address RVGET_PEER_ADDR$suffix=$address"
      echo "export RVGET_NETDEV$suffix=$netdev RVGET_RDMA_DEVICE$suffix=$device"
      echo "export RVGET_GID_INDEX$suffix=$(host_gid "$device" "$address")"
      suffix=2
    done
    printf 'export RVGET_BENCH_SHARE=%q PATH=%q\n' "$run/share" "$run/bin:$PATH"
  } >"$run/a/defaults"
  # A process namespace ends whatever the command leaves behind; without root the command alone is covered.
  local within=()
  ((EUID == 0)) && within=(unshare --fork --pid --mount-proc --kill-child=KILL)
  setpriv --pdeathsig KILL ${within[@]+"${within[@]}"} "$bench/host-run" "$run" </dev/null >>"$run/a/console" 2>&1 &
}
