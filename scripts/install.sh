# Sourced by the other scripts: installs the programs that the tests start, as root on Debian with
# apt. Otherwise it prints what to install, and ends the script.

# need PROGRAM PACKAGE: PROGRAM must exist; Debian's PACKAGE contains it.
missing=""
need() { PATH="$PATH:/usr/sbin:/usr/bin" command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }
# needjar JAR PACKAGE: the same for a Java library, in the folder that Debian uses.
needjar() { [ -e "/usr/share/java/$1.jar" ] || case " $missing " in *" $2 "*) ;; *) missing="$missing $2" ;; esac; }
need redis-server redis-server
need mariadbd mariadb-server
need pgbouncer pgbouncer
# Debian has a folder for each version of PostgreSQL, which is not in PATH.
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || need initdb postgresql
# spin searches the model of the hand-over protocol; gcc compiles it.
need spin spin
need gcc gcc
# The example of the HTTP API is in Python.
need python3 python3
# A browser looks at the pages of the lab and of verify; any of these.
found=""
for browser in chromium-headless-shell chrome-headless-shell chromium chromium-browser google-chrome; do
	! command -v "$browser" >/dev/null 2>&1 || found=yes
done
[ -n "$found" ] || missing="$missing chromium-headless-shell"
# ZooKeeper's servers, and the programs with Apache Curator and Redisson for the interop tests.
need java default-jre-headless
need javac default-jdk-headless
need mvn maven
needjar zookeeper libzookeeper-java
needjar slf4j-nop libslf4j-java
needjar slf4j-simple libslf4j-java
for part in buffer codec common handler resolver transport transport-native-epoll transport-native-unix-common; do
	needjar "netty-$part" libnetty-java
done
if [ -n "$missing" ]; then
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
		echo "installing:$missing"
		# The tests start servers of their own; the packages must not. (PostgreSQL's package still
		# creates a cluster, which stays down; if that fails, the package is installed anyway.)
		policy=/usr/sbin/policy-rc.d
		if [ ! -e "$policy" ]; then
			printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy"
			trap 'rm -f "$policy"' EXIT
		else
			policy=""
		fi
		export DEBIAN_FRONTEND=noninteractive
		apt-get update -q || true
		# shellcheck disable=SC2086 # a list of words
		apt-get install -q -y --no-install-recommends $missing
		[ -z "$policy" ] || rm -f "$policy"
	else
		echo "The tests need these Debian packages, or the same programs from elsewhere (jars in /usr/share/java):$missing" >&2
		echo "Install them:  sudo apt-get install$missing" >&2
		exit 1
	fi
fi

# If memory has room, the servers keep their data there: no test cuts the power, and on a disk that
# is busy with one server all others wait for seconds.
if [ -z "${TMPDIR:-}" ] && room="$(mktemp -d /dev/shm/holdfast.XXXXXX 2>/dev/null)"; then
	printf '#!/bin/sh\n' >"$room/executable" && chmod +x "$room/executable"
	megabytes="$(df -mP "$room" | awk 'NR == 2 { print $4 }')"
	available="$(awk '$1 == "MemAvailable:" { print int($2 / 1024) }' /proc/meminfo)"
	if "$room/executable" 2>/dev/null && [ "$megabytes" -ge 4000 ] && [ "$available" -ge 8000 ]; then
		export TMPDIR=/dev/shm GOTMPDIR=/tmp
	fi
	rm -rf "$room"
fi
