#!/bin/sh
# Packs an installation that runs where it is unpacked: build/packages/reprise-VERSION-linux-ARCH.tar.gz. usage: tarball.sh BUILD
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
version=$(sed -n 's/^project(reprise VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
name=reprise-$version-linux-$(uname -m)

# Nothing may be needed that a system may not have.
needed=$(readelf -d "$build/reprise" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -v -E '^(libc|libm|ld-linux.*)\.so\.[0-9]+$' || true)
[ -z "$needed" ] || { echo "the program needs more than the C library:" $needed >&2; exit 1; }

out=$root/build/packages
rm -rf "$out/$name"
mkdir -p "$out/$name"
cmake --install "$build" --prefix "$out/$name" --strip >/dev/null
rm -rf "$out/$name/lib"   # the unit has the paths of this folder
cp "$root/packaging/deb/copyright" "$root/LICENSE" "$out/$name/share/doc/reprise/"
cp "$root/docs/install.md" "$out/$name/README.md"
date=$(git -C "$root" log -1 --format=%cI 2>/dev/null || date -u +%FT%TZ)
tar -C "$out" --sort=name --owner=0 --group=0 --numeric-owner --mtime="$date" -czf "$out/$name.tar.gz" "$name"
rm -rf "${out:?}/$name"
echo "$out/$name.tar.gz"
