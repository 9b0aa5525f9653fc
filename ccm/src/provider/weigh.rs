//! What an answer weighs: its bytes, and what decoding them would allocate (CORE-11). It is read as it arrives, before anything is decoded.
//!
//! Two bytes on the wire may be a message of hundreds in memory, so bytes alone bound nothing.

mod budget;
mod shapes;

use cloud_provider_api::v1alpha1 as api;

use budget::{Share, TOGETHER};
use shapes::{Field, SHAPES, Shape};

pub(super) use budget::Budget;

/// The most that decoding one answer may allocate. With the bytes themselves it stays below 128 MiB.
const MOST_DECODED: u64 = 96 * 1024 * 1024;
/// What the allocator adds to a text or a list, rounded up.
const ALLOCATION: u64 = 24;

/// Why an answer is not read any further: it breaks the contract.
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
    /// It and the others that are being read would take too much memory: it may be right, and another time it is read.
    #[error(
        "the answer of {rpc} was not read: with the others that the provider sends at the same time it would take more than {TOGETHER} bytes of memory"
    )]
    Together { rpc: String },
    /// It cannot be decoded.
    #[error("the answer of {rpc} is no message of the contract")]
    Malformed { rpc: String },
}

/// What is wrong with the bytes.
#[derive(Clone, Copy)]
enum Wrong {
    /// More than so many.
    Bytes(u64),
    Decoded,
    Together,
    Malformed,
}

/// A message that is being read, and the messages around it.
struct Level {
    shape: Option<&'static Shape>,
    /// Where it ends, counted from the start of its frame.
    end: u64,
    /// The fields that were there already.
    seen: u64,
    /// How many groups are open: an old form of protobuf, which decoding passes over.
    groups: u32,
}

/// What the next bytes are.
enum Next {
    /// The head of a frame of gRPC.
    Head { bytes: [u8; 5], had: usize },
    /// A number of up to ten bytes.
    Number { of: Number, value: u64, had: u32 },
    /// Bytes that hold nothing to count.
    Skip(u64),
}

/// What a number says.
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
    /// The stream has no end: each of its messages counts by itself.
    endless: bool,
    bytes: u64,
    decoded: u64,
    /// What it takes of the budget of all answers.
    share: Share,
    levels: Vec<Level>,
    at: u64,
    next: Next,
}

impl Weight {
    /// Of the answer to a request for this path. What it takes of the budget goes back when this is dropped.
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

    /// What was counted for decoding.
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

    /// A message of so many bytes begins.
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
        // Once for itself, once for its place in the list that the messages become.
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

    /// One more value of a field: what its list or map takes for it.
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

    /// Of a field with a length: a text, a message, or numbers in one piece.
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
        // The bytes too: they are kept until the message is whole.
        if !self.share.grow_to(self.bytes + self.decoded) {
            return Err(Wrong::Together);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
