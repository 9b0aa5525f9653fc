//! Which requests are sent again, and when. Pure.

use std::time::Duration;

use http::{HeaderMap, Method, StatusCode};

use crate::core::Backoff;

/// The most attempts for a request that the server answers with 429, or with 503 and Retry-After.
const PUT_OFF: u32 = 5;
/// The most attempts for a GET without an answer.
const BROKEN: u32 = 3;
/// The longest wait before jitter, even if the server asks for a longer one.
const LONGEST: Duration = Duration::from_secs(30);

pub(super) enum Outcome<'a> {
    Answer(StatusCode, &'a HeaderMap),
    /// No answer: a broken connection, or a timeout.
    Broken,
}

/// The wait before attempt `attempt + 1` (the first is 1). `None`: the outcome is final. A write is
/// sent again only if the server said that it did not execute it, and a DELETE never: what led to it
/// may not hold any more. `jitter` is from 0.0 to 1.0 and adds up to a fifth.
pub(super) fn again(
    method: &Method,
    attempt: u32,
    outcome: &Outcome<'_>,
    jitter: f64,
) -> Option<Duration> {
    if *method == Method::DELETE {
        return None;
    }
    let wait = match outcome {
        Outcome::Answer(StatusCode::TOO_MANY_REQUESTS, headers) if attempt < PUT_OFF => {
            retry_after(headers).unwrap_or_else(|| doubling(500, attempt))
        }
        Outcome::Answer(StatusCode::SERVICE_UNAVAILABLE, headers) if attempt < PUT_OFF => {
            retry_after(headers)?
        }
        Outcome::Broken if *method == Method::GET && attempt < BROKEN => doubling(100, attempt),
        Outcome::Answer(..) | Outcome::Broken => return None,
    };
    let wait = wait.clamp(Duration::from_millis(50), LONGEST);
    Some(wait + wait.mul_f64(0.2 * jitter))
}

fn doubling(first_ms: u64, attempt: u32) -> Duration {
    Backoff::new(Duration::from_millis(first_ms), LONGEST).pause(attempt - 1)
}

/// In seconds; the API server does not use dates.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m11_what_is_sent_again_and_when() {
        let (get, patch, delete) = (Method::GET, Method::PATCH, Method::DELETE);
        let answer = |code: u16, after: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(after) = after {
                headers.insert("retry-after", after.parse().unwrap());
            }
            Some((StatusCode::from_u16(code).unwrap(), headers))
        };
        let cases = [
            (&patch, 1, answer(200, None), None),
            (&patch, 1, answer(429, Some("2")), Some(2000)),
            (&patch, 4, answer(429, Some("2")), Some(2000)),
            (&patch, 5, answer(429, Some("2")), None),
            (&patch, 1, answer(429, Some("9999")), Some(30_000)),
            (&patch, 1, answer(429, Some("0")), Some(50)),
            (&patch, 1, answer(429, None), Some(500)),
            (&patch, 3, answer(429, Some("soon")), Some(2000)),
            (&patch, 1, answer(503, Some("1")), Some(1000)),
            (&patch, 1, answer(503, None), None),
            (&get, 1, answer(503, None), None),
            (&patch, 1, answer(500, Some("1")), None),
            (&patch, 1, answer(504, Some("1")), None),
            (&patch, 1, answer(409, Some("1")), None),
            (&patch, 1, None, None),
            (&delete, 1, answer(429, Some("2")), None),
            (&delete, 1, answer(503, Some("1")), None),
            (&get, 1, None, Some(100)),
            (&get, 2, None, Some(200)),
            (&get, 3, None, None),
        ];
        for (method, attempt, outcome, expected) in cases {
            let outcome = match &outcome {
                Some((status, headers)) => Outcome::Answer(*status, headers),
                None => Outcome::Broken,
            };
            let expected = expected.map(Duration::from_millis);
            assert_eq!(again(method, attempt, &outcome, 0.0), expected);
            let most = again(method, attempt, &outcome, 1.0);
            assert_eq!(most, expected.map(|wait| wait + wait / 5));
        }
    }
}
