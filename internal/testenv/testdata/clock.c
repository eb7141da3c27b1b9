// What a server that is started with LD_PRELOAD sees of the wall clock: the system's, shifted by as many
// nanoseconds as the file says that HOLDFAST_TEST_CLOCK names. All other clocks are the system's.
//
// Nothing here allocates: an allocator may ask for the time before main, and within malloc.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t *shift; // null until the constructor has run: not shifted

__attribute__((constructor)) static void map_shift(void) {
	const char *path = getenv("HOLDFAST_TEST_CLOCK");
	if (path == NULL)
		return;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		_exit(113); // rather than a server whose clock never jumps
	void *p = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		_exit(113);
	__atomic_store_n(&shift, (int64_t *)p, __ATOMIC_RELEASE);
}

static int64_t shifted_by(void) {
	int64_t *p = __atomic_load_n(&shift, __ATOMIC_ACQUIRE);
	return p == NULL ? 0 : __atomic_load_n(p, __ATOMIC_RELAXED);
}

#define SECOND 1000000000LL

static void add(struct timespec *ts, int64_t ns) {
	int64_t nsec = ts->tv_nsec + ns % SECOND;
	ts->tv_sec += ns / SECOND;
	if (nsec < 0) {
		nsec += SECOND;
		ts->tv_sec--;
	} else if (nsec >= SECOND) {
		nsec -= SECOND;
		ts->tv_sec++;
	}
	ts->tv_nsec = nsec;
}

// The system call itself: the C library's function is this one.
int clock_gettime(clockid_t id, struct timespec *ts) {
	if (syscall(SYS_clock_gettime, id, ts) != 0)
		return -1;
	if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)
		add(ts, shifted_by());
	return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
	struct timespec ts;
	(void)zone;
	clock_gettime(CLOCK_REALTIME, &ts);
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *t) {
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	if (t != NULL)
		*t = ts.tv_sec;
	return ts.tv_sec;
}

// The kernel compares the end of a wait with its own clock. Ends that were reckoned from the shifted one are
// brought back to it; those on the monotonic clock, which are decades smaller, are left alone.
int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict end) {
	static int (*next)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
	int (*wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *) = __atomic_load_n(&next, __ATOMIC_ACQUIRE);
	if (wait == NULL) {
		// The plain name is that of an older kind of condition where there are two.
		*(void **)&wait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
		if (wait == NULL)
			*(void **)&wait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
		__atomic_store_n(&next, wait, __ATOMIC_RELEASE);
	}
	struct timespec ours = *end;
	if (ours.tv_sec > 1000000000)
		add(&ours, -shifted_by());
	return wait(cond, mutex, &ours);
}
