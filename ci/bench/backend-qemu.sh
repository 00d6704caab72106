# shellcheck shell=bash disable=SC2034,SC2154
# QEMU with Debian's stock kernel: real symmetric multiprocessing and the kernel that servers run, without a
# kernel build; many times slower when the machine cannot virtualise.

backend_prepare() {
  local option
  BOOT_TIMEOUT=240
  need bench ip rdma ping setpriv unshare
  need bench-qemu qemu-system-x86_64
  [[ $NIC == rxe ]] || fail "Debian's stock kernel has no $NIC: use --backend uml"
  interruptible setpriv --pdeathsig TERM "$bench/fetch-qemu" >"$run/kernel" || exit 125
  kernel=$(<"$run/kernel")
  contain=(unshare --fork --pid --kill-child=KILL --net)
  if ((EUID != 0)); then contain+=(--user --map-root-user); fi
  "${contain[@]}" true 2>"$run/reason" || fail "cannot make namespaces: $(<"$run/reason")"

  # /dev/kvm may be there and yet unable to boot a stock kernel (nested virtualisation), so only a kernel that
  # came up counts. The answer holds until the machine boots again.
  accelerator=tcg,thread=multi
  if [[ -w /dev/kvm ]]; then
    option=$cache/kvm-$(tr -d - </proc/sys/kernel/random/boot_id)
    if [[ ! -e $option ]]; then
      rm -f "$cache"/kvm-*
      if interruptible timeout -k 1 15 setpriv --pdeathsig KILL qemu-system-x86_64 -nodefaults -no-reboot -display none \
        -monitor none -serial stdio -accel kvm -cpu max -smp 2 -m 256M -nic none -kernel "$kernel/vmlinuz" \
        -initrd "$kernel/initrd" -append "console=ttyS0 panic=-1 rvget_probe" </dev/null 2>&1 |
        grep -q 'qemu-init:'; then
        echo kvm >"$option"
      else
        echo tcg,thread=multi >"$option"
      fi
    fi
    accelerator=$(<"$option")
  fi
  verbose "accelerator: $accelerator"
}

backend_mount() { # TAG MODE DIR WHERE
  # cache=mmap: the guests and the machine see each other's files, and shared mappings work.
  echo "$1 $(escaped "$4") 9p $2,X-mount.mkdir,trans=virtio,version=9p2000.L,msize=262144,cache=mmap"
}

backend_start() {
  local shares=("rvget=rw=$run") dir i=0
  for dir in ${shown[@]+"${shown[@]}"}; do shares+=("dir$((i++))=ro=$dir"); done
  for dir in ${writable[@]+"${writable[@]}"}; do shares+=("dir$((i++))=rw=$dir"); done
  setpriv --pdeathsig KILL "${contain[@]}" \
    "$bench/qemu-guests" "$run" "$kernel" "$MEMORY" "$HOSTS" "$DEVICES" "$accelerator" "${shares[@]}" \
    </dev/null >>"$run/a/console" 2>&1 &
}
