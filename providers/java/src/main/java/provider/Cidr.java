package provider;

import java.math.BigInteger;
import java.net.InetAddress;
import java.net.UnknownHostException;

/** A CIDR, and addresses as text. */
record Cidr(byte[] network, int length) {
  /** 0 to 255. InetAddress would ask DNS about 192.0.2.999. */
  private static final String OCTET = "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";

  /** The address's bytes, or null if the text is no IP address. */
  static byte[] address(String text) {
    try {
      return isLiteral(text) ? InetAddress.getByName(text).getAddress() : null;
    } catch (UnknownHostException error) {
      return null;
    }
  }

  /** Whether InetAddress reads the text as an address and never asks DNS about it. */
  static boolean isLiteral(String text) {
    return text.contains(":") ? text.matches("[0-9a-fA-F:][0-9a-fA-F:.]*") : text.matches("(" + OCTET + "\\.){3}" + OCTET);
  }

  /** The CIDR, or null if the text is none. */
  static Cidr parse(String text) {
    String[] parts = text.split("/", -1);
    byte[] network = parts.length == 2 ? address(parts[0]) : null;
    if (network == null || !parts[1].matches("\\d{1,3}") || Integer.parseInt(parts[1]) > network.length * 8) return null;
    return new Cidr(network, Integer.parseInt(parts[1]));
  }

  /** A CIDR in one form, so that all ways to write the same network are equal: `fd00::/64` is `fd00:0:0::/64` (ROUTE-8). */
  static String network(String text) {
    Cidr cidr = parse(text);
    return cidr == null ? text : cidr.text(cidr.first()) + "/" + cidr.length;
  }

  boolean isIpv6() {
    return network.length == 16;
  }

  boolean contains(byte[] address) {
    int hostBits = network.length * 8 - length;
    return address.length == network.length && new BigInteger(1, address).shiftRight(hostBits).equals(new BigInteger(1, network).shiftRight(hostBits));
  }

  /** The n-th address as text, without the first and, for IPv4, the last one of the CIDR; null beyond these. */
  String nth(long n) {
    int hostBits = network.length * 8 - length;
    BigInteger size = BigInteger.ONE.shiftLeft(hostBits).subtract(isIpv6() ? BigInteger.ZERO : BigInteger.ONE);
    if (BigInteger.valueOf(n + 1).compareTo(size) >= 0) return null;
    return text(first().add(BigInteger.valueOf(n + 1)));
  }

  private BigInteger first() {
    int hostBits = network.length * 8 - length;
    return new BigInteger(1, network).shiftRight(hostBits).shiftLeft(hostBits);
  }

  private String text(BigInteger number) {
    byte[] digits = number.toByteArray();
    byte[] address = new byte[network.length];
    int bytes = Math.min(digits.length, address.length);
    System.arraycopy(digits, digits.length - bytes, address, address.length - bytes, bytes);
    return text(address);
  }

  /** The usual form of an address. In IPv6 `::` replaces the longest run of zeros; of equally long runs, the first (RFC 5952). */
  static String text(byte[] address) {
    try {
      String text = InetAddress.getByAddress(address).getHostAddress();
      if (address.length == 4) return text;
      for (int zeros = 8; zeros > 1; zeros--) {
        String shorter = text.replaceFirst("(^|:)0(:0){" + (zeros - 1) + "}(:|$)", "::");
        if (!shorter.equals(text)) return shorter;
      }
      return text;
    } catch (UnknownHostException error) {
      throw new IllegalArgumentException(error);
    }
  }
}
