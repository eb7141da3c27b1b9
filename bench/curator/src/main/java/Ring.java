import java.util.Arrays;
import java.util.StringJoiner;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;

/** One name and those who contend for it: the ring of run_one.go, word for word. All times are System.nanoTime. */
final class Ring {
	final Member[] members;
	volatile boolean counting;
	volatile long end; // when the measurement ended
	volatile boolean stopped; // end is valid
	volatile boolean ended;

	private final AtomicInteger inside = new AtomicInteger(); // never above one, or the library is broken
	private final AtomicInteger violations = new AtomicInteger();
	private final AtomicLong entered = new AtomicLong(); // acquisitions, counted or not
	private final AtomicInteger gone = new AtomicInteger(); // members that contend no more
	private volatile long left; // just before the last holder called release
	private volatile int last = -1; // who that was

	static final class Member {
		int n;
		int self;
		long longest;
		final Samples handovers = new Samples();
		final Samples waits = new Samples();
		final Samples pairs = new Samples(); // acquire and release of one without rivals
		String error;
	}

	Ring(int n) {
		members = new Member[n];
		Arrays.setAll(members, i -> new Member());
	}

	/** Whether there were as many acquisitions as members, or one has failed. */
	boolean begun() {
		return entered.get() >= members.length || gone.get() > 0;
	}

	/** Acquires and releases until the end. */
	void contend(int id, InterProcessMutex mutex) {
		Member me = members[id];
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
						me.handovers.add(now - left);
					}
				} else if (stopped) {
					me.longest = Math.max(me.longest, end - asked); // who still waited has waited, too
				}
				last = id;
				inside.decrementAndGet();
				left = System.nanoTime();
				mutex.release();
				long next = System.nanoTime();
				if (counted && members.length == 1) {
					me.pairs.add(next - asked);
				}
				asked = next;
			}
		} catch (Exception e) {
			me.error = e.toString();
		} finally {
			gone.incrementAndGet();
		}
	}

	String json(long cpu) {
		StringJoiner all = new StringJoiner(",", "[", "]");
		StringJoiner errors = new StringJoiner("; ");
		for (Member m : members) {
			all.add("{\"n\":" + m.n + ",\"self\":" + m.self + ",\"longest\":" + m.longest
					+ ",\"handovers\":" + m.handovers + ",\"waits\":" + m.waits + ",\"pairs\":" + m.pairs + "}");
			if (m.error != null) {
				errors.add(m.error.replaceAll("[^ -~]|[\"\\\\]", "?"));
			}
		}
		return "{\"members\":" + all + ",\"violations\":" + violations + ",\"cpu\":" + cpu + ",\"error\":\"" + errors + "\"}";
	}

	/** Durations in nanoseconds, as they come. */
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
