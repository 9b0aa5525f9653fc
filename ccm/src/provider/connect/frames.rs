//! Finds the provider's GOAWAY in the bytes of a connection: hyper does not report it.

/// The bytes of a frame's header: length, type, flags, stream.
const HEAD: usize = 9;
const GOAWAY: u8 = 7;

/// The reader's position in the frames of HTTP/2.
#[derive(Default)]
pub(super) struct Frames {
    head: [u8; HEAD],
    /// How many bytes of the header were read.
    have: usize,
    /// How many bytes of the payload are still to come.
    left: usize,
}

impl Frames {
    /// Reads more bytes. Returns whether they completed the header of a GOAWAY.
    pub(super) fn go_away(&mut self, mut bytes: &[u8]) -> bool {
        let mut found = false;
        while let Some(first) = bytes.first() {
            if self.left > 0 {
                let skipped = self.left.min(bytes.len());
                self.left -= skipped;
                bytes = bytes.get(skipped..).unwrap_or_default();
                continue;
            }
            if let Some(byte) = self.head.get_mut(self.have) {
                *byte = *first;
            }
            self.have += 1;
            bytes = bytes.get(1..).unwrap_or_default();
            if self.have == HEAD {
                let [high, middle, low, kind, ..] = self.head;
                self.left = u32::from_be_bytes([0, high, middle, low]) as usize;
                self.have = 0;
                found |= kind == GOAWAY;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, 0, 0, 0, 0, 0]);
        frame.extend(payload);
        frame
    }

    #[test]
    fn core_17_a_goaway_is_seen_however_the_bytes_are_cut() {
        // Bytes within a payload that look like a GOAWAY are none.
        let data = frame(0, &frame(GOAWAY, &[0; 8]).repeat(40));
        let mut bytes = frame(4, &[]);
        bytes.extend(&data);
        let quiet = bytes.len();
        bytes.extend(frame(GOAWAY, &[0; 8]));
        for size in [1, 2, 8, 9, 10, 64, bytes.len()] {
            let mut frames = Frames::default();
            let mut read = 0;
            let mut seen = Vec::new();
            for part in bytes.chunks(size) {
                read += part.len();
                if frames.go_away(part) {
                    seen.push(read);
                }
            }
            let [at] = seen[..] else {
                panic!("{size}: {seen:?}");
            };
            assert!(
                at >= quiet + HEAD && at < quiet + HEAD + size,
                "{size}: {at}"
            );
        }
    }
}
