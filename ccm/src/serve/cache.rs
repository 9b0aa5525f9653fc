//! A bounded cache of answers that are valid for a short time.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// The most answers to keep. A caller that sends a million tokens costs reviews, not memory.
pub(super) const CAPACITY: usize = 1024;

/// SHA-256 of the question.
pub(super) type Digest = Vec<u8>;

/// Answers by the digest of their question. The question itself (a token) is not kept.
pub(super) struct Cache<V> {
    answers: BTreeMap<Digest, (Instant, V)>,
    lifetime: Duration,
}

impl<V: Clone> Cache<V> {
    /// Answers are valid for `lifetime`. With zero, none is valid.
    pub(super) fn new(lifetime: Duration) -> Self {
        Self {
            lifetime,
            answers: BTreeMap::new(),
        }
    }

    pub(super) fn get(&self, question: &Digest, now: Instant) -> Option<V> {
        self.answers
            .get(question)
            .filter(|(expiry, _)| now < *expiry)
            .map(|(_, answer)| answer.clone())
    }

    pub(super) fn put(&mut self, question: Digest, answer: V, now: Instant) {
        self.answers.retain(|_, (expiry, _)| now < *expiry);
        if self.answers.len() >= CAPACITY {
            let expiries = self.answers.iter().map(|(old, (expiry, _))| (expiry, old));
            if let Some(first) = expiries.min().map(|(_, old)| old.clone()) {
                self.answers.remove(&first);
            }
        }
        let expiry = now + self.lifetime;
        self.answers.insert(question, (expiry, answer));
    }
}

/// SHA-256, from the crypto provider that TLS uses.
pub(super) fn digest(bytes: &[u8]) -> Digest {
    use rustls::SupportedCipherSuite as Suite;
    let hash = match rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256 {
        Suite::Tls12(suite) => suite.common.hash_provider,
        Suite::Tls13(suite) => suite.common.hash_provider,
    };
    hash.hash(bytes).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(10);

    #[test]
    fn the_digest_is_sha_256() {
        assert_eq!(
            digest(b"abc"),
            b"\xba\x78\x16\xbf\x8f\x01\xcf\xea\x41\x41\x40\xde\x5d\xae\x22\x23\xb0\x03\x61\xa3\x96\x17\x7a\x9c\xb4\x10\xff\x61\xf2\x00\x15\xad"
        );
    }

    #[test]
    fn b_m4_an_answer_is_good_for_its_lifetime_only() {
        let start = Instant::now();
        let mut cache = Cache::new(LIFETIME);
        cache.put(digest(b"a"), 1, start);
        let almost = start + LIFETIME.checked_sub(Duration::from_millis(1)).unwrap();
        assert_eq!(cache.get(&digest(b"a"), almost), Some(1));
        assert_eq!(cache.get(&digest(b"b"), almost), None);
        assert_eq!(cache.get(&digest(b"a"), start + LIFETIME), None);
    }

    #[test]
    fn b_m4_the_cache_is_bounded_and_drops_the_oldest() {
        let now = Instant::now();
        let mut cache = Cache::new(LIFETIME);
        let key = |n: usize| digest(&n.to_le_bytes());
        for n in 0..CAPACITY * 3 {
            cache.put(key(n), n, now + Duration::from_micros(n as u64));
            assert!(cache.answers.len() <= CAPACITY);
        }
        let then = now + Duration::from_millis(10);
        assert_eq!(cache.get(&key(0), then), None);
        assert_eq!(
            cache.get(&key(CAPACITY * 3 - 1), then),
            Some(CAPACITY * 3 - 1)
        );
        assert_eq!(
            cache.get(&key(CAPACITY * 2), then),
            Some(CAPACITY * 2),
            "the newest CAPACITY stay"
        );
    }

    #[test]
    fn an_answer_that_was_renewed_outlives_its_first_expiry() {
        let start = Instant::now();
        let mut cache = Cache::new(LIFETIME);
        cache.put(digest(b"a"), 1, start);
        cache.put(digest(b"a"), 2, start + LIFETIME / 2);
        let later = start + LIFETIME + Duration::from_millis(1);
        cache.put(digest(b"b"), 3, later);
        assert_eq!(cache.get(&digest(b"a"), later), Some(2));
        cache.put(digest(b"b"), 4, start + LIFETIME * 9);
        assert_eq!(cache.answers.len(), 1);
    }
}
