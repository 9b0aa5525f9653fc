//! Weighs an answer: its bytes, and the memory that decoding them would take (CORE-11). The bytes
//! are read as they arrive, before any decoding.
//!
//! Two bytes on the wire may become a message of hundreds of bytes in memory, so a limit of bytes
//! alone does not bound the memory.

mod budget;
mod shapes;

use cloud_provider_api::v1alpha1 as api;

use budget::{Share, TOGETHER};
use shapes::{Field, SHAPES, Shape};

pub(super) use budget::Budget;

/// The most memory that decoding one answer may take. Together with the bytes it is at most 128
/// MiB.
const MOST_DECODED: u64 = 96 * 1024 * 1024;
/// The memory that the allocator adds to a text or a list, rounded up.
const ALLOCATION: u64 = 24;

/// Why the ccm reads no more of an answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    /// It has too many bytes.
    #[error("the answer has more than {most} bytes, which is the most that {rpc} may answer")]
    Bytes { rpc: String, most: u64 },
    /// It would take too much memory.
    #[error(
        "the answer of {rpc} would take more than {MOST_DECODED} bytes of memory: it has too many items"
    )]
    Decoded { rpc: String },
    /// With the other answers that are being read, it would take too much memory. The answer may
    /// keep to the contract, and can be read at another time.
    #[error(
        "the answer of {rpc} was not read: with the others that the provider sends at the same time it would take more than {TOGETHER} bytes of memory"
    )]
    Together { rpc: String },
    /// It cannot be decoded.
    #[error("the answer of {rpc} is no message of the contract")]
    Malformed { rpc: String },
}

/// The variants of [`Refused`], without the RPC.
#[derive(Clone, Copy)]
enum Wrong {
    /// The answer has more bytes than this.
    Bytes(u64),
    Decoded,
    Together,
    Malformed,
}

/// A message that is being read. Its outer messages have levels of their own.
struct Level {
    shape: Option<&'static Shape>,
    /// The message's end, counted from the start of its frame.
    end: u64,
    /// The fields that appeared before, as bits.
    seen: u64,
    /// The number of open groups. Groups are an old form of protobuf, which decoding skips.
    groups: u32,
}

/// The kind of the next bytes.
enum Next {
    /// The header of a gRPC frame.
    Head { bytes: [u8; 5], had: usize },
    /// A number of up to ten bytes.
    Number { of: Number, value: u64, had: u32 },
    /// Bytes without anything to count.
    Skip(u64),
}

/// The meaning of a number.
#[derive(Clone, Copy)]
enum Number {
    Tag,
    Value,
    Length(u64),
}

const TAG: Next = Next::Number {
    of: Number::Tag,
    value: 0,
    had: 0,
};
const HEAD: Next = Next::Head {
    bytes: [0; 5],
    had: 0,
};

/// The weight of one answer.
pub(super) struct Weight {
    rpc: String,
    root: Option<&'static Shape>,
    most_bytes: u64,
    /// The stream has no end, so each message counts alone.
    endless: bool,
    bytes: u64,
    decoded: u64,
    /// The answer's share of the budget of all answers.
    share: Share,
    levels: Vec<Level>,
    at: u64,
    next: Next,
}

impl Weight {
    /// The weight of the answer to a request for this path. Dropping it returns its share of the
    /// budget.
    pub(super) fn of(path: &str, budget: &Budget) -> Self {
        let rpc = path.rsplit('/').next().unwrap_or_default();
        Self {
            rpc: rpc.to_owned(),
            root: SHAPES.answer(path),
            most_bytes: api::most_answer_bytes(rpc) as u64,
            endless: rpc == "WatchChanges",
            bytes: 0,
            decoded: 0,
            share: budget.share(),
            levels: Vec::new(),
            at: 0,
            next: HEAD,
        }
    }

    /// The counted memory of decoding.
    #[cfg(any(test, fuzzing))]
    pub(super) fn decoded(&self) -> u64 {
        self.decoded
    }

    /// Adds the next bytes.
    pub(super) fn add(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        self.read(bytes).map_err(|wrong| {
            let rpc = self.rpc.clone();
            match wrong {
                Wrong::Bytes(most) => Refused::Bytes { rpc, most },
                Wrong::Decoded => Refused::Decoded { rpc },
                Wrong::Together => Refused::Together { rpc },
                Wrong::Malformed => Refused::Malformed { rpc },
            }
        })
    }

    fn read(&mut self, mut bytes: &[u8]) -> Result<(), Wrong> {
        while let Some((&byte, rest)) = bytes.split_first() {
            match &mut self.next {
                Next::Head { bytes: head, had } => {
                    head[*had] = byte;
                    *had += 1;
                    bytes = rest;
                    if *had == head.len() {
                        let [_, length @ ..] = *head;
                        self.begin(u64::from(u32::from_be_bytes(length)))?;
                    }
                }
                Next::Skip(left) => {
                    let skipped = (*left).min(bytes.len() as u64);
                    *left -= skipped;
                    self.at += skipped;
                    bytes = &bytes[skipped as usize..];
                    if *left == 0 {
                        self.next = TAG;
                    }
                }
                Next::Number { of, value, had } => {
                    *value |= u64::from(byte & 0x7f).wrapping_shl(7 * *had);
                    *had += 1;
                    self.at += 1;
                    bytes = rest;
                    let (of, value) = (*of, *value);
                    if byte < 0x80 {
                        self.next = TAG;
                        self.number(of, value)?;
                    } else if *had == 10 {
                        return Err(Wrong::Malformed);
                    }
                }
            }
            self.leave()?;
        }
        Ok(())
    }

    /// A message of `length` bytes begins.
    fn begin(&mut self, length: u64) -> Result<(), Wrong> {
        if self.endless {
            self.bytes = 0;
            self.decoded = 0;
            self.share.release();
        }
        self.bytes += length;
        for (bytes, most) in [
            (length, api::MOST_MESSAGE_BYTES as u64),
            (self.bytes, self.most_bytes),
        ] {
            if bytes > most {
                return Err(Wrong::Bytes(most));
            }
        }
        // Once for the message, and once for its place in the list that the messages become.
        self.charge(2 * self.root.map_or(0, |shape| shape.size))?;
        self.at = 0;
        self.next = TAG;
        self.enter(self.root, length)
    }

    fn enter(&mut self, shape: Option<&'static Shape>, length: u64) -> Result<(), Wrong> {
        let end = self.at + length;
        if self.levels.last().is_some_and(|around| end > around.end) {
            return Err(Wrong::Malformed);
        }
        self.levels.push(Level {
            shape,
            end,
            seen: 0,
            groups: 0,
        });
        Ok(())
    }

    /// Leaves the messages that end here.
    fn leave(&mut self) -> Result<(), Wrong> {
        while let Some(level) = self.levels.last() {
            if self.at < level.end {
                return Ok(());
            }
            let whole = matches!(
                self.next,
                Next::Number {
                    of: Number::Tag,
                    had: 0,
                    ..
                }
            );
            if self.at > level.end || !whole || level.groups > 0 {
                return Err(Wrong::Malformed);
            }
            self.levels.pop();
            if self.levels.is_empty() {
                self.next = HEAD;
            }
        }
        Ok(())
    }

    fn number(&mut self, of: Number, value: u64) -> Result<(), Wrong> {
        match of {
            Number::Value => Ok(()),
            Number::Tag => self.tag(value >> 3, value & 7),
            Number::Length(field) => self.length(field, value),
        }
    }

    fn tag(&mut self, field: u64, kind: u64) -> Result<(), Wrong> {
        let Some(level) = self.levels.last_mut() else {
            return Err(Wrong::Malformed);
        };
        let expect = |of| Next::Number {
            of,
            value: 0,
            had: 0,
        };
        match kind {
            _ if field == 0 => return Err(Wrong::Malformed),
            0 => self.next = expect(Number::Value),
            1 => self.next = Next::Skip(8),
            2 => self.next = expect(Number::Length(field)),
            3 => level.groups += 1,
            4 => level.groups = level.groups.checked_sub(1).ok_or(Wrong::Malformed)?,
            5 => self.next = Next::Skip(4),
            _ => return Err(Wrong::Malformed),
        }
        if matches!(kind, 0 | 1 | 5) {
            self.item(field)?;
        }
        Ok(())
    }

    /// One more value of a field: charges what its list or map takes for it.
    fn item(&mut self, field: u64) -> Result<Option<&'static Field>, Wrong> {
        let Some(level) = self.levels.last_mut().filter(|level| level.groups == 0) else {
            return Ok(None);
        };
        let Some((index, known)) = level.shape.and_then(|shape| shape.field(field)) else {
            return Ok(None);
        };
        let bit = 1_u64.checked_shl(index as u32).unwrap_or_default();
        let first = level.seen & bit == 0;
        level.seen |= bit;
        self.charge(if first { known.first } else { known.further })?;
        Ok(Some(known))
    }

    /// A field with a length: a text, a message, or packed numbers.
    fn length(&mut self, field: u64, length: u64) -> Result<(), Wrong> {
        let end = self.levels.last().map_or(0, |level| level.end);
        if length > end.saturating_sub(self.at) {
            return Err(Wrong::Malformed);
        }
        let known = self.item(field)?;
        if let Some(inner) = known.and_then(|known| known.message) {
            return self.enter(Some(inner.get()), length);
        }
        if let Some(known) = known.filter(|_| length > 0) {
            self.charge(ALLOCATION + length * known.per_byte)?;
        }
        if length > 0 {
            self.next = Next::Skip(length);
        }
        Ok(())
    }

    fn charge(&mut self, bytes: u64) -> Result<(), Wrong> {
        self.decoded += bytes;
        if self.decoded > MOST_DECODED {
            return Err(Wrong::Decoded);
        }
        // The bytes count too: they are kept until the message is complete.
        if !self.share.grow_to(self.bytes + self.decoded) {
            return Err(Wrong::Together);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
