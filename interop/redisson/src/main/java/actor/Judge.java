package actor;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.Socket;
import java.nio.charset.StandardCharsets;

/** A connection to a Redis server that does not go through Redisson. */
final class Judge implements AutoCloseable {
    private final Socket socket;
    private final BufferedReader in;

    Judge(String server) throws IOException {
        int colon = server.lastIndexOf(':');
        socket = new Socket(server.substring(0, colon), Integer.parseInt(server.substring(colon + 1)));
        socket.setTcpNoDelay(true);
        in = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.US_ASCII));
    }

    /** Runs a command that is answered by a number or one line of text. */
    String call(String... words) throws IOException {
        StringBuilder request = new StringBuilder("*" + words.length + "\r\n");
        for (String w : words) {
            request.append("$").append(w.length()).append("\r\n").append(w).append("\r\n");
        }
        socket.getOutputStream().write(request.toString().getBytes(StandardCharsets.US_ASCII));
        String reply = in.readLine();
        if (reply == null || reply.startsWith("-") || reply.equals("$-1")) {
            throw new IOException(words[0] + ": " + reply);
        }
        return reply.startsWith("$") ? in.readLine() : reply.substring(1);
    }

    @Override
    public void close() throws IOException {
        socket.close();
    }
}
