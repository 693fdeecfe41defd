#!/bin/bash
# What check.py runs in a clean system that was booted: installs /root/package.deb as people do, uses it, removes it.
# Says "all right" at the end, or stops at what is wrong.
set -euo pipefail
trap 'echo "wrong in line $LINENO: $BASH_COMMAND"; journalctl -u reprise --no-pager 2>/dev/null | tail -n 20' ERR

# Everything but what dpkg, apt and systemd note down about themselves.
files() {
  find /etc /usr /opt /var /home -xdev \( -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache/apt \
    -o -path /var/cache/debconf -o -path /var/log -o -path /var/lib/systemd -o -path /var/tmp -o -path /etc/ld.so.cache \
    -o -path /var/cache/ldconfig -o -path /etc/resolv.conf \) -prune -o -print | sort
}

# ask PATH BODY: the answer, as it comes.
ask() {
  exec 3<>/dev/tcp/127.0.0.1/8080 || return 1
  printf 'POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' \
    "$1" "${#2}" "$2" >&3
  cat <&3
}

chat() { ask /v1/chat/completions '{"messages": [{"role": "user", "content": "Tell me a story about a cat."}], "max_tokens": 24, "stream": true}'; }

# Processor time of process $1, or, with fields 16 and 17, of its children that ended; seconds.
spent() { cut -d ' ' -f "$2" "/proc/$1/stat" | perl -lane "printf '%.2f', (\$F[0] + \$F[1]) / $(getconf CLK_TCK)"; }

files >/root/before
before=$(spent $$ 16,17)
begin=$(date +%s.%N)
apt-get install -y -qq --no-install-recommends /root/package.deb >/root/apt.log 2>&1
installed=$(date +%s.%N)
for _ in $(seq 200); do
  { chat 2>/dev/null || true; } | grep -m1 -q '"content":"[^"]' && break
  sleep 0.05
done
end=$(date +%s.%N)
after=$(spent $$ 16,17)
show() { systemctl show reprise -p "$1" --value; } # times are microseconds since the boot
echo "seconds to install: $(perl -e "printf '%.1f', $installed - $begin")"
echo "seconds of them that the service started: $(perl -e "printf '%.1f', ($(show ActiveEnterTimestampMonotonic) - $(show InactiveExitTimestampMonotonic)) / 1e6")"
echo "seconds to the first token: $(perl -e "printf '%.1f', $end - $begin")"
pid=$(show MainPID)
echo "processor seconds to the first token: $(perl -e "printf '%.1f', $after - $before + $(spent "$pid" 14,15)")"

package=$(dpkg-deb -f /root/package.deb Package)
echo "version: $(reprise --version | head -n 1)"
test "$(systemctl is-active reprise)" = active
test "$(systemctl is-enabled reprise)" = enabled
user=$(stat -c %u "/proc/$pid")
test "$user" -ge 61184 # a user that exists while the service runs
echo "user: $user"
test "$(tr '\0' ' ' <"/proc/$pid/cmdline")" = "/usr/bin/reprise serve --config /etc/reprise/reprise.toml "
test -z "$(systemd-analyze verify --man=no reprise.service 2>&1 | grep reprise || true)"
exposure=$(systemd-analyze security reprise 2>/dev/null | sed -n 's/.*exposure level for .*: \([0-9.]*\) .*/\1/p')
echo "exposure: $exposure"
perl -e "exit !($exposure <= 2.0)"
for page in reprise reprise-serve reprise-bench-decode; do test -s "/usr/share/man/man1/$page.1.gz"; done
test -s /usr/share/reprise/grafana.json
test -z "$(ldd /usr/bin/reprise | grep 'not found' || true)"
systemctl restart reprise
systemctl is-active -q reprise
echo "# mine" >>/etc/reprise/reprise.toml

apt-get remove -y -qq --autoremove "$package" >>/root/apt.log 2>&1
test "$(systemctl is-active reprise || true)" != active
files >/root/after
left=$(comm -13 /root/before /root/after)
echo "left after removal:" $left
while read -r path; do
  case $path in
    /etc/reprise|/etc/reprise/reprise.toml|/var/lib/private|/var/lib/private/reprise*|/var/lib/reprise*|/var/cache/private|/var/cache/private/reprise*|/var/cache/reprise*|/etc/systemd/system/multi-user.target.wants/reprise.service) ;;
    *) echo "this should not be left: $path"; false ;;
  esac
done <<<"$left"

apt-get purge -y -qq "$package" >>/root/apt.log 2>&1
files >/root/after
left=$(comm -13 /root/before /root/after | grep -v -x -e /var/lib/private -e /var/cache/private || true)
echo "left after purging:" $left
test -z "$left"
echo "all right"
