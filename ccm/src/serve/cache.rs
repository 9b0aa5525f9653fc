//! A bounded cache of answers that are valid for a short time.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::core::lock;

/// The most answers to keep. A caller that sends a million tokens costs reviews, not memory.
pub(super) const CAPACITY: usize = 1024;

/// SHA-256 of the question.
pub(super) type Digest = Vec<u8>;

/// Answers by the digest of their question. The question itself (a token) is not kept.
pub(super) struct Cache<V> {
    answers: Mutex<BTreeMap<Digest, (Instant, V)>>,
    lifetime: Duration,
}

impl<V: Clone> Cache<V> {
    /// Answers are valid for `lifetime`. With zero, none is valid.
    pub(super) fn new(lifetime: Duration) -> Self {
        Self {
            lifetime,
            answers: Mutex::default(),
        }
    }

    pub(super) fn get(&self, question: &Digest) -> Option<V> {
        let answers = lock(&self.answers);
        let (expiry, answer) = answers.get(question)?;
        (Instant::now() < *expiry).then(|| answer.clone())
    }

    pub(super) fn put(&self, question: Digest, answer: V) {
        let now = Instant::now();
        let mut answers = lock(&self.answers);
        answers.retain(|_, (expiry, _)| now < *expiry);
        if answers.len() >= CAPACITY {
            let expiries = answers.iter().map(|(old, (expiry, _))| (expiry, old));
            if let Some(first) = expiries.min().map(|(_, old)| old.clone()) {
                answers.remove(&first);
            }
        }
        answers.insert(question, (now + self.lifetime, answer));
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
    use tokio::time::advance;

    use super::*;

    const LIFETIME: Duration = Duration::from_secs(10);

    #[test]
    fn the_digest_is_sha_256() {
        assert_eq!(
            digest(b"abc"),
            b"\xba\x78\x16\xbf\x8f\x01\xcf\xea\x41\x41\x40\xde\x5d\xae\x22\x23\xb0\x03\x61\xa3\x96\x17\x7a\x9c\xb4\x10\xff\x61\xf2\x00\x15\xad"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn b_m4_an_answer_is_good_for_its_lifetime_only() {
        let cache = Cache::new(LIFETIME);
        cache.put(digest(b"a"), 1);
        let end = Duration::from_millis(1);
        advance(LIFETIME.checked_sub(end).unwrap()).await;
        assert_eq!(cache.get(&digest(b"a")), Some(1));
        assert_eq!(cache.get(&digest(b"b")), None);
        advance(end).await;
        assert_eq!(cache.get(&digest(b"a")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn b_m4_the_cache_is_bounded_and_drops_the_oldest() {
        let cache = Cache::new(LIFETIME);
        let key = |n: usize| digest(&n.to_le_bytes());
        for n in 0..CAPACITY * 3 {
            cache.put(key(n), n);
            assert!(lock(&cache.answers).len() <= CAPACITY);
            advance(Duration::from_micros(1)).await;
        }
        assert_eq!(cache.get(&key(0)), None);
        assert_eq!(cache.get(&key(CAPACITY * 3 - 1)), Some(CAPACITY * 3 - 1));
        assert_eq!(
            cache.get(&key(CAPACITY * 2)),
            Some(CAPACITY * 2),
            "the newest CAPACITY stay"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_was_renewed_outlives_its_first_expiry() {
        let cache = Cache::new(LIFETIME);
        cache.put(digest(b"a"), 1);
        advance(LIFETIME / 2).await;
        cache.put(digest(b"a"), 2);
        advance(LIFETIME / 2 + Duration::from_millis(1)).await;
        cache.put(digest(b"b"), 3);
        assert_eq!(cache.get(&digest(b"a")), Some(2));
        advance(LIFETIME * 8).await;
        cache.put(digest(b"b"), 4);
        assert_eq!(lock(&cache.answers).len(), 1);
    }
}
