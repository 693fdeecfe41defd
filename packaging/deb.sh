#!/bin/sh
# Makes a Debian package of a build: build/packages/PACKAGE_VERSION_ARCH.deb. usage: deb.sh BUILD reprise|reprise-cuda
#
# The version is that of CMakeLists.txt, the entry of the changelog the first of CHANGELOG.md, the date that of the commit.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
package=$2
maintainer="Reprise maintainers <maintainers@reprise.invalid>"
version=$(sed -n 's/^project(reprise VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
architecture=$(dpkg --print-architecture)
summary="server for language models that never computes a prefix twice"
case $package in
  reprise)
    relations="Conflicts: reprise-cuda\nReplaces: reprise-cuda"
    details="This build computes on the CPU; reprise-cuda adds NVIDIA GPUs." ;;
  reprise-cuda)
    relations="Provides: reprise (= $version-1)\nConflicts: reprise\nReplaces: reprise"
    summary="$summary (CUDA)"
    details="This build computes on NVIDIA GPUs and on the CPU.\n The driver is not part of it." ;;
  *) echo "usage: deb.sh BUILD reprise|reprise-cuda" >&2; exit 2 ;;
esac

export SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct 2>/dev/null || date +%s)
stage=$root/build/packages/$package
rm -rf "$stage"
mkdir -p "$stage/debian"
cp "$root/packaging/deb/rules" "$root/packaging/deb/postrm" "$stage/debian/"
cp "$root/CHANGELOG.md" "$stage/"
sed -e "s|@PACKAGE@|$package|; s|@ARCHITECTURE@|$architecture|; s|@MAINTAINER@|$maintainer|" \
    -e "s|@RELATIONS@|$relations|; s|@SUMMARY@|$summary|; s|@DETAILS@|$details|" \
    "$root/packaging/deb/control.in" >"$stage/debian/control"
cp "$root/packaging/deb/copyright" "$stage/debian/"
cat >"$stage/debian/$package.lintian-overrides" <<END
# Ubuntu has these libraries under other names; docs/adr/0013-packages.md says why they are linked in.
$package: embedded-library lib*
END
cat >"$stage/debian/changelog" <<END
reprise ($version-1) unstable; urgency=medium

  * See CHANGELOG.md.

 -- $maintainer  $(date -Ru -d "@$SOURCE_DATE_EPOCH")
END
cd "$stage"
PACKAGE=$package BUILD=$build dpkg-buildpackage --build=binary --no-sign --no-check-builddeps >build.log 2>&1 || {
  tail -n 30 build.log >&2
  exit 1
}
# What all three distributions have under these names, or provide. Anything else would be needed in vain in one of them.
shared="libc6 libgcc-s1 libpcre2-8-0 libssl3 libstdc++6 libxxhash0 libzstd1 zlib1g"
for library in $(sed -n 's/^Depends: //p' "debian/$package/DEBIAN/control" | sed 's/([^)]*)//g; s/,/ /g'); do
  case " $shared " in *" $library "*) continue ;; esac
  echo "the package would need $library, which Debian 12, Debian 13 and Ubuntu 24.04 do not all have: link it in (cmake/link.cmake)" >&2
  exit 1
done
echo "$root/build/packages/${package}_$version-1_$architecture.deb"
