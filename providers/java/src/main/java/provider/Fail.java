package provider;

/** A failure in the body of an answer, never in the gRPC status (CORE-4). The code is a name of FailureCode without its prefix. */
final class Fail extends Exception {
  private static final long serialVersionUID = 1;
  final String code;
  final String reason;

  Fail(String code, String message) {
    this(code, message, "");
  }

  Fail(String code, String message, String reason) {
    super(message);
    this.code = code;
    this.reason = reason;
  }

  /** The time to wait, in milliseconds; 0 if the controller may choose. */
  long retryAfterMs() {
    return code.equals("THROTTLED") || code.equals("BUSY") ? 1_000 : 0;
  }
}
