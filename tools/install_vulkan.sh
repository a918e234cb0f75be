#!/bin/sh
# What the tests of Vulkan run on: Mesa's driver for the CPU, the loader, the validation layer
# and Debian's spirv-val. Needs apt and root; without them it says so and goes on, and the
# tests that need a device say that they were skipped.
packages="mesa-vulkan-drivers libvulkan1 vulkan-validationlayers spirv-tools"

say() { echo "make: no Vulkan for the tests: $1" >&2; exit 0; }

command -v apt-get >/dev/null || say "there is no apt-get; install $packages by other means"
missing=""
for package in $packages; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
[ "$(id -u)" = 0 ] || say "not root; run: sudo apt-get install$missing"
log=$(mktemp)
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update >"$log" 2>&1 || true
apt-get -qq install -y --no-install-recommends $missing >>"$log" 2>&1 && { rm -f "$log"; exit 0; }
tail -n 3 "$log" >&2
say "apt-get install$missing failed, see above"
