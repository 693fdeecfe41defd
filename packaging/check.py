#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs a package in clean systems as people do, and proves what docs/install.md says of it. Needs root.

usage: check.py PACKAGE.deb TARBALL.tar.gz [SUITE...]      suites: bookworm, trixie, noble (default: all that can be had)

A system is a debootstrap root that systemd-nspawn boots without a network; what the package depends on was downloaded before. In it,
packaging/check_inside.sh installs the package, asks the service for a chat, removes and purges the package. The program of the tarball runs in
the system as it was. Roots are kept under build/packages/roots.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROOTS = ROOT / "build/packages/roots"
DEBIANS, UBUNTUS = ["bookworm", "trixie"], ["noble"]
# Archives to make the systems of; by default those that debootstrap knows.
MIRRORS = {"debian": os.environ.get("DEBIAN_MIRROR"), "ubuntu": os.environ.get("UBUNTU_MIRROR")}
SCRIPTS = pathlib.Path("/usr/share/debootstrap/scripts")
KEYRING = pathlib.Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg")  # of the package ubuntu-keyring
FIRST_TOKEN_SECONDS = 10  # of work: a machine that does other things takes longer


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


def make_root(suite):
    """A minimal system with systemd."""
    root = ROOTS / suite
    if (root / "made").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    options = ["--variant=minbase", "--include=systemd,systemd-sysv,dbus"]
    script = [] if (SCRIPTS / suite).exists() else [SCRIPTS / "gutsy"]  # of all Ubuntus since
    mirror = MIRRORS["ubuntu" if suite in UBUNTUS else "debian"]
    if suite in UBUNTUS:
        options += ["--components=main,universe", f"--keyring={KEYRING}"]
    run("debootstrap", *options, suite, root, *([mirror] if mirror else []), *script)
    (root / "made").touch()
    return root


def copy_with_package(root, package, copy):
    """A system with the package and the archives of what it needs, not installed."""
    shutil.rmtree(copy, ignore_errors=True)
    run("cp", "-a", root, copy)
    shutil.copy(package, copy / "root/package.deb")
    shutil.copy(ROOT / "packaging/check_inside.sh", copy / "root/check.sh")
    shutil.copy("/etc/resolv.conf", copy / "etc/resolv.conf")
    (copy / "etc/apt/apt.conf.d/keep").write_text('Binary::apt-get::APT::Keep-Downloaded-Packages "true";\n')
    run("chroot", copy, "apt-get", "update", "-qq")
    run("chroot", copy, "apt-get", "install", "-qq", "-y", "--no-install-recommends", "--download-only", "/root/package.deb")
    (copy / "etc/systemd/system/check.service").write_text(
        "[Unit]\nAfter=multi-user.target\nSuccessAction=poweroff-force\nFailureAction=poweroff-force\n"
        "[Service]\nType=oneshot\nEnvironment=DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin\n"
        "ExecStart=/bin/bash /root/check.sh\nStandardOutput=file:/root/log\nStandardError=inherit\nTimeoutStartSec=300\n"
        "[Install]\nWantedBy=default.target\n")
    run("chroot", copy, "systemctl", "enable", "check.service")


def boot(copy):
    """Boots it until the check has switched it off; what the check said."""
    subprocess.run(["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network", "--console=pipe", "-D", copy, "--boot"],
                   env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},  # control groups as these systems have them by themselves
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600, check=False)
    log = copy / "root/log"
    return log.read_text() if log.exists() else "the system did not boot"


def check(suite, package):
    copy = ROOTS / f"{suite}.checked"
    copy_with_package(make_root(suite), package, copy)
    said = boot(copy)
    print(f"== {suite}\n{said}", end="", flush=True)
    facts = dict(line.split(": ", 1) for line in said.splitlines() if ": " in line)
    good = said.endswith("all right\n") and float(facts["processor seconds to the first token"]) < FIRST_TOKEN_SECONDS
    shutil.rmtree(copy)
    return good


def check_tarball(suite, tarball):
    """A system that has nothing but itself, and may not be written to: the program answers where it was unpacked."""
    with tempfile.TemporaryDirectory() as folder:
        run("tar", "-C", folder, "--strip-components=1", "-xzf", tarball)
        said = run("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network", "--pipe", "--read-only",
                   f"--bind-ro={folder}:/opt", "-D", make_root(suite),
                   "/opt/bin/reprise", "run", "--seed", "1", "-n", "8", "-p", "Tell me a story.")
    print(f"== {suite}, from {tarball.name}: {said.strip()}", flush=True)
    return len(said.split()) > 3


def main():
    package, tarball, suites = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:] or DEBIANS + UBUNTUS
    bad = []
    for suite in suites:
        if suite in UBUNTUS and not KEYRING.exists():
            print(f"== {suite}: not checked: it needs {KEYRING} (package ubuntu-keyring)")
            continue
        if not (check(suite, package) and check_tarball(suite, tarball)):
            bad.append(suite)
    print(f"wrong: {', '.join(bad)}" if bad else "packages are as promised")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
