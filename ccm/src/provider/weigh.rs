//! Weighs an answer: its bytes, and the memory that decoding them would take (CORE-11). The length
//! of a message counts as soon as it is known, and the content of a message before it is decoded.
//!
//! Two bytes on the wire may become a message of hundreds of bytes in memory, so a limit of bytes
//! alone does not bound the memory.

mod budget;
mod shapes;

use bytes::Bytes;
use cloud_provider_api::v1alpha1 as api;
use prost::encoding::decode_varint;

use budget::{Share, TOGETHER};
use shapes::{SHAPES, Shape};

pub(super) use budget::Budget;

/// The most memory that decoding one answer may take. Together with the bytes it is at most 128
/// MiB.
const MOST_DECODED: u64 = 96 * 1024 * 1024;
/// The memory that the allocator adds to a text or a list, rounded up.
const ALLOCATION: u64 = 24;

/// The bytes before each message: a flag, and the length.
const HEAD: usize = 5;

/// Why the ccm reads no more of an answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", wrong.text(rpc))]
pub(super) struct Refused {
    pub(super) rpc: String,
    pub(super) wrong: Wrong,
}

/// The reason why an answer is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It has more bytes than this.
    Bytes(u64),
    /// It would take too much memory.
    Decoded,
    /// With the other answers that are being read, it would take too much memory. The answer may
    /// keep to the contract, and can be read at another time.
    Together,
    /// It cannot be decoded.
    Malformed,
}

impl Wrong {
    fn text(self, rpc: &str) -> String {
        match self {
            Self::Bytes(most) => format!(
                "the answer has more than {most} bytes, which is the most that {rpc} may answer"
            ),
            Self::Decoded => format!(
                "the answer of {rpc} would take more than {MOST_DECODED} bytes of memory: it has too many items"
            ),
            Self::Together => format!(
                "the answer of {rpc} was not read: with the others that the provider sends at the same time it would take more than {TOGETHER} bytes of memory"
            ),
            Self::Malformed => format!("the answer of {rpc} is no message of the contract"),
        }
    }
}

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
    /// The bytes of a message that is not complete.
    held: Vec<u8>,
    /// The head of that message was read.
    begun: bool,
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
            held: Vec::new(),
            begun: false,
        }
    }

    /// The counted memory of decoding.
    #[cfg(any(test, fuzzing))]
    pub(super) fn decoded(&self) -> u64 {
        self.decoded
    }

    /// Adds the next bytes. Returns the messages that are complete now, with their heads.
    pub(super) fn add(&mut self, bytes: &[u8]) -> Result<Bytes, Refused> {
        self.read(bytes).map_err(|wrong| Refused {
            rpc: self.rpc.clone(),
            wrong,
        })
    }

    /// The bytes of a message that the end of the answer cut off. The reader must report them.
    pub(super) fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.held).into()
    }

    fn read(&mut self, bytes: &[u8]) -> Result<Bytes, Wrong> {
        let mut held = std::mem::take(&mut self.held);
        held.extend_from_slice(bytes);
        let (mut complete, mut wanted) = (0, 0);
        while let Some((head, _)) = held[complete..].split_first_chunk::<HEAD>() {
            let [_, length @ ..] = *head;
            let length = u32::from_be_bytes(length) as usize;
            if !self.begun {
                self.begin(length as u64)?;
                self.begun = true;
            }
            let start = complete + HEAD;
            let Some(message) = held.get(start..start + length) else {
                wanted = HEAD + length;
                break;
            };
            self.walk(self.root, message)?;
            self.grow(length as u64)?;
            self.begun = false;
            complete = start + length;
        }
        let mut whole = Vec::new();
        if complete > 0 {
            let rest = held.split_off(complete);
            whole = std::mem::replace(&mut held, rest);
        }
        held.reserve_exact(wanted.saturating_sub(held.len()));
        self.held = held;
        Ok(whole.into())
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
        self.grow(length)
    }

    /// Charges what the fields of a message take. No message of the contract contains itself, so
    /// the contract bounds the depth.
    fn walk(&mut self, shape: Option<&'static Shape>, mut bytes: &[u8]) -> Result<(), Wrong> {
        // The fields that appeared before, as bits, and the number of open groups. Groups are an
        // old form of protobuf, which decoding skips.
        let (mut seen, mut groups) = (0_u64, 0_u32);
        while !bytes.is_empty() {
            let tag = number(&mut bytes)?;
            let (field, kind) = (tag >> 3, tag & 7);
            let length = match kind {
                _ if field == 0 => return Err(Wrong::Malformed),
                0 => number(&mut bytes).map(|_| 0)?,
                1 => 8,
                2 => number(&mut bytes)?,
                3 => {
                    groups += 1;
                    continue;
                }
                4 => {
                    groups = groups.checked_sub(1).ok_or(Wrong::Malformed)?;
                    continue;
                }
                5 => 4,
                _ => return Err(Wrong::Malformed),
            };
            let content = usize::try_from(length).ok();
            let content = content.and_then(|length| bytes.split_off(..length));
            let content = content.ok_or(Wrong::Malformed)?;
            let known = shape.filter(|_| groups == 0);
            let Some((index, known)) = known.and_then(|shape| shape.field(field)) else {
                continue;
            };
            let bit = 1_u64.checked_shl(index as u32).unwrap_or_default();
            let first = seen & bit == 0;
            seen |= bit;
            self.charge(if first { known.first } else { known.further })?;
            match known.message {
                _ if kind != 2 => {}
                Some(inner) => self.walk(Some(inner.get()), content)?,
                None if content.is_empty() => {}
                None => self.charge(ALLOCATION + length * known.per_byte)?,
            }
        }
        if groups > 0 {
            return Err(Wrong::Malformed);
        }
        Ok(())
    }

    fn charge(&mut self, bytes: u64) -> Result<(), Wrong> {
        self.decoded += bytes;
        if self.decoded > MOST_DECODED {
            return Err(Wrong::Decoded);
        }
        Ok(())
    }

    /// Takes from the budget what the answer needs so far, with a next message of `length` bytes.
    /// The bytes of that message count twice, because its reader copies them before it decodes
    /// them.
    fn grow(&mut self, length: u64) -> Result<(), Wrong> {
        let bytes = self.bytes.max(2 * length);
        if !self.share.grow_to(bytes + self.decoded) {
            return Err(Wrong::Together);
        }
        Ok(())
    }
}

fn number(bytes: &mut &[u8]) -> Result<u64, Wrong> {
    decode_varint(bytes).map_err(|_| Wrong::Malformed)
}

#[cfg(test)]
mod tests;
