#!/usr/bin/env bash
# Boots an example kernel in QEMU on four CPUs.
#
#     examples/boot/qemu.sh IMAGE [QEMU-OPTION...]
#
# MEMORY=40M sets the memory, 2G if not set. Prints the kernel's serial line. Exits with 0 if the kernel passed, with
# 1 if it failed, with another number if it did not come to an end: 124 after SECONDS_MOST, 120 if not set.
set -euo pipefail

[ $# -gt 0 ] || { sed -n '4s/^# *//p' "$0" >&2; exit 2; }
image=$1
shift
# Byte 18 of an ELF file names the processor.
case $(od -An -tu1 -j18 -N1 "$image" | tr -d ' ') in
183) qemu=qemu-system-aarch64 package=qemu-system-arm ;;
243) qemu=qemu-system-riscv64 package="qemu-system-misc opensbi" ;;
*) qemu=qemu-system-x86_64 package=qemu-system-x86 ;;
esac
command -v $qemu >/dev/null || { echo "qemu.sh: $qemu is missing: apt-get install $package" >&2; exit 2; }
# A hole below 4 GiB with half of the memory above it, where there is enough: so that all three zones exist.
case $qemu in
*riscv64) machine=(-machine virt) ;;
*x86_64) machine=(-machine "q35,max-ram-below-4g=1G" -device "isa-debug-exit,iobase=0xf4,iosize=0x04") ;;
*) machine=(-machine "virt,gic-version=2" -cpu cortex-a72 -semihosting) ;;
esac
status=0
timeout --foreground "${SECONDS_MOST:-120}" "$qemu" "${machine[@]}" -accel tcg -smp 4 -m "${MEMORY:-2G}" -nodefaults -no-reboot \
    -display none -serial stdio -kernel "$image" "$@" </dev/null || status=$?
case $status in
33) exit 0 ;;
35) exit 1 ;;
0) exit 3 ;; # it ended without saying how
*) exit "$status" ;;
esac
