# shellcheck shell=bash disable=SC2034,SC2154
# User Mode Linux: a kernel that is an ordinary program. Needs no privilege and no virtualisation, boots in
# well under a second; one virtual CPU.

backend_prepare() {
  BOOT_TIMEOUT=60
  need bench ip rdma ping setpriv unshare
  verbose "looking for the User Mode Linux kernel"
  interruptible setpriv --pdeathsig TERM "$bench/build-uml" >"$run/kernel" || exit 125
  kernel=$(<"$run/kernel")
  contain=(unshare --fork --pid --kill-child=KILL --net --mount)
  if ((EUID != 0)); then contain+=(--user --map-root-user); fi
  # Containers may forbid new namespaces; the wire cannot do without, and neither can the cleanup.
  "${contain[@]}" true 2>"$run/reason" || fail "cannot make namespaces: $(<"$run/reason")"
  if ((HOSTS == 2)); then
    need bench ethtool
    if "$bench/socket-buffers" raise "$cache/socket-buffers" $$ 2>/dev/null; then
      buffers_raised=1
    else
      note "cannot raise net.core.rmem_default (needs root): the wire will lose bursts and be slow"
    fi
  fi
}

backend_mount() { # TAG MODE DIR WHERE
  echo "none $(escaped "$4") hostfs $2,X-mount.mkdir,$(escaped "$3")"
}

backend_start() {
  local mtu=$((MTU_A > MTU_B ? MTU_A : MTU_B))
  # --pdeathsig: the kernel kills the guests when this script dies, even from a SIGKILL.
  setpriv --pdeathsig KILL "${contain[@]}" \
    "$bench/uml-guests" "$run" "$kernel" "$MEMORY" "$HOSTS" "$DEVICES" "$mtu" \
    </dev/null >>"$run/a/console" 2>&1 &
}
