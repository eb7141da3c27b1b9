package actor;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Takes Redisson's locks as a test commands. A line on standard input is the name of an actor, a
 * command, and its arguments, separated by spaces. The program answers each with one line on
 * standard output: the actor, "ok" or "busy" or "lost" or "error", and words. An actor has a thread
 * of its own, because Redisson's locks belong to threads. Actors with the same settings share a
 * Redisson client, as the threads of a program do. The commands are the methods of {@link Actor};
 * "halt" ends the process at once, without an answer. So does the end of the input.
 */
final class Main {
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    private Main() {}

    public static void main(String[] args) throws IOException {
        Map<String, ExecutorService> threads = new HashMap<>();
        Map<String, Actor> actors = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            List<String> words = List.of(line.trim().split(" +"));
            if (words.contains("halt")) {
                break;
            }
            String name = words.get(0);
            Actor actor = actors.computeIfAbsent(name, Actor::new);
            ExecutorService thread = threads.computeIfAbsent(name, n -> Executors.newSingleThreadExecutor());
            thread.execute(() -> answer(name, actor, words.subList(1, words.size())));
            if (words.contains("close")) {
                thread.shutdown(); // after the answer
                actors.remove(name);
                threads.remove(name);
            }
        }
        Runtime.getRuntime().halt(0); // its locks stay taken until their leases have expired
    }

    private static void answer(String name, Actor actor, List<String> words) {
        String reply;
        try {
            reply = actor.run(words);
        } catch (IllegalMonitorStateException e) {
            reply = "lost " + e.getMessage();
        } catch (Exception | LinkageError e) {
            reply = "error " + e;
        }
        synchronized (OUT) {
            OUT.println(name + " " + reply.replace('\n', ' ').replace('\r', ' ').strip());
        }
    }
}
