import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;

/**
 * Threads that contend for one name, each with a client of its own or with shared ones.
 *
 * <p>Arguments: the library (curator or redisson), the servers (client i uses only number i, in turns), the session timeout
 * in milliseconds, the name, the number of clients, the number of threads. The threads contend from the start, uncounted.
 * The program prints "ready" after as many acquisitions as there are threads. It reads commands from standard input: it
 * answers "count" with "counting", and "stop" with "stopped". After "end" it lets every waiter have its turn, prints the
 * figures as a line of JSON, and ends. If its input ends early, so does the program.
 */
final class Contend {
	/** The clients of a library. */
	interface Clients extends AutoCloseable {
		/** Returns a mutex for one thread, of client i. */
		Contest.Mutex mutex(int i, String name);
	}

	public static void main(String[] args) throws Exception {
		String[] servers = args[1].split(",");
		int session = Integer.parseInt(args[2]);
		int n = Integer.parseInt(args[4]);
		Contest contest = new Contest(Integer.parseInt(args[5]));
		Clients clients = switch (args[0]) {
			case "curator" -> new CuratorClients(servers, session, n);
			case "redisson" -> new RedissonClients(servers[0], n, contest.participants.length);
			default -> throw new IllegalArgumentException("library \"" + args[0] + "\": allowed are curator and redisson");
		};
		List<Thread> threads = new ArrayList<>();
		for (int i = 0; i < contest.participants.length; i++) {
			Contest.Mutex mutex = clients.mutex(i % n, args[3]);
			int id = i;
			threads.add(new Thread(() -> contest.contend(id, mutex)));
		}
		threads.forEach(Thread::start);
		while (!contest.begun()) {
			Thread.sleep(1);
		}
		say("ready");

		BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
		expect(in, "count");
		long cpu = cpu();
		contest.counting = true;
		say("counting");
		expect(in, "stop");
		contest.end = System.nanoTime();
		contest.stopped = true;
		contest.counting = false;
		cpu = cpu() - cpu;
		say("stopped");
		expect(in, "end");
		contest.ended = true;
		for (Thread t : threads) {
			t.join();
		}
		say(contest.json(cpu));
		clients.close();
	}

	/** The CPU time of this process, in nanoseconds. */
	private static long cpu() {
		return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
	}

	private static void say(String line) {
		System.out.println(line);
		System.out.flush();
	}

	private static void expect(BufferedReader in, String line) throws Exception {
		String got = in.readLine();
		if (got == null) {
			Runtime.getRuntime().halt(0); // the parent process has ended
		}
		if (!got.equals(line)) {
			throw new IllegalArgumentException("got \"" + got + "\" instead of \"" + line + "\"");
		}
	}
}
