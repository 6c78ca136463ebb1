// Receives webhooks of Tumira. WEBHOOK_SECRET=whsec_… java Receiver.java (Java 17 or later, no packages)
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

import static java.nio.charset.StandardCharsets.UTF_8;

public class Receiver {
    static final byte[] SECRET =
        Base64.getDecoder().decode(System.getenv("WEBHOOK_SECRET").replaceFirst("^whsec_", ""));
    static final int PORT = Integer.parseInt(System.getenv().getOrDefault("PORT", "8000"));
    static final long TOLERANCE_S = 5 * 60;
    static final int BODY_MAX = 64 * 1024;

    // Use a table of your database instead, with the id as its primary key: this forgets when it stops.
    static final Map<String, byte[]> events = new ConcurrentHashMap<>();

    static boolean isGenuine(String id, String timestamp, String signatures, byte[] body)
            throws GeneralSecurityException {
        if (!timestamp.matches("[0-9]{1,12}")
                || Math.abs(System.currentTimeMillis() / 1000 - Long.parseLong(timestamp)) > TOLERANCE_S) {
            return false;
        }
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(SECRET, "HmacSHA256"));
        mac.update((id + "." + timestamp + ".").getBytes(UTF_8));
        byte[] expected = ("v1," + Base64.getEncoder().encodeToString(mac.doFinal(body))).getBytes(UTF_8);
        // While a secret is being changed there are two signatures; one match is enough.
        for (String signature : signatures.split(" ")) {
            if (MessageDigest.isEqual(expected, signature.getBytes(UTF_8))) {
                return true;
            }
        }
        return false;
    }

    // Writes an event down, to be worked on later; false if we have it already.
    static boolean keep(String id, byte[] body) {
        return events.putIfAbsent(id, body) == null;
    }

    static String header(HttpExchange exchange, String name) {
        String value = exchange.getRequestHeaders().getFirst(name);
        return value == null ? "" : value;
    }

    static void receive(HttpExchange exchange) throws IOException {
        try (exchange) {
            byte[] body = exchange.getRequestBody().readNBytes(BODY_MAX);
            String id = header(exchange, "webhook-id");
            boolean genuine =
                isGenuine(id, header(exchange, "webhook-timestamp"), header(exchange, "webhook-signature"), body);
            if (genuine && keep(id, body)) {
                System.out.println("new " + id + " " + new String(body, UTF_8));
            }
            exchange.sendResponseHeaders(genuine ? 204 : 400, -1);
        } catch (GeneralSecurityException missing) {
            throw new IOException(missing);
        }
    }

    public static void main(String[] arguments) throws IOException {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", PORT), 0);
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.createContext("/", Receiver::receive);
        server.start();
    }
}
