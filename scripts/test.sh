#!/bin/sh
# Runs every check of the repository on a machine that has Go, git and gcc: installs what
# the tests start (as root on Debian, by apt; else it says what to install), then vet,
# staticcheck, and the tests of all modules under the race detector.
set -eu
cd "$(dirname "$0")/.."
export GOFLAGS="${GOFLAGS:-} -buildvcs=false"

# need PROGRAM PACKAGE: PROGRAM must be there; it comes with Debian's PACKAGE.
missing=""
need() { PATH="$PATH:/usr/sbin:/usr/bin" command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }
# needjar JAR PACKAGE: the same for a Java library, where Debian has them.
needjar() { [ -e "/usr/share/java/$1.jar" ] || case " $missing " in *" $2 "*) ;; *) missing="$missing $2" ;; esac; }
need redis-server redis-server
need mariadbd mariadb-server
need pgbouncer pgbouncer
# Debian has a folder for each version of PostgreSQL, which PATH does not name.
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || need initdb postgresql
# The model of the hand-over protocol is searched by spin, and compiled by gcc.
need spin spin
need gcc gcc
# ZooKeeper's servers, and Apache Curator's programs that are built to stand in line with ours.
need java default-jre-headless
need javac default-jdk-headless
need mvn maven
needjar zookeeper libzookeeper-java
needjar slf4j-nop libslf4j-java
for part in buffer codec common handler resolver transport transport-native-epoll transport-native-unix-common; do
	needjar "netty-$part" libnetty-java
done
if [ -n "$missing" ]; then
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
		echo "installing:$missing"
		# The tests start servers of their own; the packages must not. (That of PostgreSQL makes a
		# cluster all the same, which stays down; if it cannot, it says so and is installed.)
		policy=/usr/sbin/policy-rc.d
		if [ ! -e "$policy" ]; then
			printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy"
			trap 'rm -f "$policy"' EXIT
		fi
		export DEBIAN_FRONTEND=noninteractive
		apt-get update -q || true
		# shellcheck disable=SC2086 # a list of words
		apt-get install -q -y --no-install-recommends $missing
	else
		echo "The tests need these Debian packages, or the same programs from elsewhere (jars in /usr/share/java):$missing" >&2
		echo "Install them:  sudo apt-get install$missing" >&2
		exit 1
	fi
fi

modules=". cmd/holdfast bench interop"
for module in $modules; do
	echo "== $module: vet, staticcheck"
	go -C "$module" vet ./...
	go -C "$module" run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
done

# Most tests wait for clocks and servers most of the time. So those of the library run beside those of the
# other modules, whose output follows. Those that use all the processor there is, or watch leases at several
# servers at once, run one package after the other in the end.
alone='/(redislock/quorum|cmd/holdfast/(verify|torture|mutant))$'
test="go test -race -timeout 20m -parallel 4"
beside() {
	echo "== $1"
	(
		cd "$1"
		# shellcheck disable=SC2046 # a list of packages
		$test -skip '^TestVerify' $(go list ./... | grep -vE "$alone")
	)
}
others="$(mktemp)"
(
	status=0
	for module in $modules; do
		[ "$module" = . ] || beside "$module" || status=1
	done
	exit $status
) >"$others" 2>&1 &
failed=0
beside . || failed=1
wait $! || failed=1
cat "$others"
rm -f "$others"
echo "== one after the other"
$test ./redislock/quorum || failed=1
cd cmd/holdfast
$test -run '^TestVerify' . || failed=1
$test -p 1 ./verify ./torture ./mutant || failed=1
exit $failed
