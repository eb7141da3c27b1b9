import java.util.Arrays;
import java.util.StringJoiner;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/** One name and its contenders: the contest of run_one.go. All times are System.nanoTime. */
final class Contest {
	final Participant[] participants;
	volatile boolean counting;
	volatile long end; // when the measurement ended
	volatile boolean stopped; // end is valid
	volatile boolean ended;

	private final AtomicInteger inside = new AtomicInteger(); // more than one: the library is broken
	private final AtomicInteger violations = new AtomicInteger();
	private final AtomicLong entered = new AtomicLong(); // acquisitions, counted or not
	private final AtomicInteger finished = new AtomicInteger(); // participants that have ended
	private volatile long releasedAt; // just before the last holder called release
	private volatile int last = -1; // the index of the last holder

	/** The lock of one contender. The thread that has acquired it releases it. */
	interface Mutex {
		void acquire() throws Exception;

		void release() throws Exception;
	}

	static final class Participant {
		int n;
		int self;
		long longest;
		final Samples handovers = new Samples();
		final Samples waits = new Samples();
		final Samples pairs = new Samples(); // acquire and release of a single participant
		String error;
	}

	Contest(int n) {
		participants = new Participant[n];
		Arrays.setAll(participants, i -> new Participant());
	}

	/** Reports whether there were as many acquisitions as participants, or one has failed. */
	boolean begun() {
		return entered.get() >= participants.length || finished.get() > 0;
	}

	/** Acquires and releases until the end. */
	void contend(int id, Mutex mutex) {
		Participant me = participants[id];
		try {
			long asked = System.nanoTime();
			while (!ended) {
				mutex.acquire();
				long now = System.nanoTime();
				if (inside.incrementAndGet() != 1) {
					violations.incrementAndGet();
				}
				entered.incrementAndGet();
				boolean counted = counting;
				if (counted) {
					me.n++;
					me.waits.add(now - asked);
					me.longest = Math.max(me.longest, now - asked);
					if (last == id) {
						me.self++;
					} else if (last >= 0) {
						me.handovers.add(now - releasedAt);
					}
				} else if (stopped) {
					me.longest = Math.max(me.longest, end - asked); // a wait that was still going on
				}
				last = id;
				inside.decrementAndGet();
				releasedAt = System.nanoTime();
				mutex.release();
				long next = System.nanoTime();
				if (counted && participants.length == 1) {
					me.pairs.add(next - asked);
				}
				asked = next;
			}
		} catch (Exception e) {
			me.error = e.toString();
		} finally {
			finished.incrementAndGet();
		}
	}

	String json(long cpu) {
		StringJoiner all = new StringJoiner(",", "[", "]");
		StringJoiner errors = new StringJoiner("; ");
		for (Participant m : participants) {
			all.add("{\"n\":" + m.n + ",\"self\":" + m.self + ",\"longest\":" + m.longest
					+ ",\"handovers\":" + m.handovers + ",\"waits\":" + m.waits + ",\"pairs\":" + m.pairs + "}");
			if (m.error != null) {
				errors.add(m.error.replaceAll("[^ -~]|[\"\\\\]", "?"));
			}
		}
		return "{\"members\":" + all + ",\"violations\":" + violations + ",\"cpu\":" + cpu + ",\"error\":\"" + errors + "\"}";
	}

	/** Durations in nanoseconds, in the order of their measurement. */
	static final class Samples {
		private long[] all = new long[1024];
		private int n;

		void add(long d) {
			if (n == all.length) {
				all = Arrays.copyOf(all, 2 * n);
			}
			all[n++] = d;
		}

		@Override
		public String toString() {
			return Arrays.toString(Arrays.copyOf(all, n));
		}
	}
}
