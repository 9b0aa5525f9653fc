//! Finds the gRPC status in a block of header fields (RFC 7541), and parses nothing else.

/// The size of the static table, which does not have `grpc-status`.
const STATIC: usize = 61;
const STATUS: &str = "grpc-status";

/// The fields that later blocks of a connection can reference, the newest first.
#[derive(Debug, Default)]
pub(crate) struct Table(Vec<Field>);

#[derive(Debug, Clone, Copy, Default)]
struct Field {
    is_status: bool,
    /// Its value, if it is a number that a gRPC status can have.
    status: Option<u8>,
}

impl Table {
    /// The status in this block, if it has one.
    pub(crate) fn status(&mut self, block: &[u8]) -> Option<u8> {
        let mut rest = block;
        let mut found = None;
        while let Some(first) = rest.first().copied() {
            let field = if first & 0x80 != 0 {
                let index = number(&mut rest, 7)?;
                self.at(index)
            } else if first & 0xe0 == 0x20 {
                number(&mut rest, 5)?;
                continue;
            } else {
                let keeps = first & 0x40 != 0;
                let index = number(&mut rest, if keeps { 6 } else { 4 })?;
                let is_status = if index == 0 {
                    is(text(&mut rest)?, STATUS)
                } else {
                    self.at(index).is_status
                };
                let value = text(&mut rest)?;
                let status = (0..=16).find(|code: &u8| is(value, &code.to_string()));
                let field = Field { is_status, status };
                if keeps {
                    self.0.insert(0, field);
                }
                field
            };
            if field.is_status {
                found = field.status;
            }
        }
        found
    }

    fn at(&self, index: usize) -> Field {
        let place = index.checked_sub(STATIC + 1);
        let field = place.and_then(|place| self.0.get(place));
        field.copied().unwrap_or_default()
    }
}

/// A number with this many bits in its first byte.
fn number(rest: &mut &[u8], bits: u32) -> Option<usize> {
    let most = (1_usize << bits) - 1;
    let (first, mut more) = rest.split_first()?;
    let mut number = usize::from(*first) & most;
    if number == most {
        for place in 0..4 {
            let (byte, others) = more.split_first()?;
            more = others;
            number += usize::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *rest = more;
    Some(number)
}

/// A text, and whether it is Huffman-coded.
type Text<'a> = (bool, &'a [u8]);

fn text<'a>(rest: &mut &'a [u8]) -> Option<Text<'a>> {
    let coded = rest.first()? & 0x80 != 0;
    let length = number(rest, 7)?;
    let (text, more) = rest.split_at_checked(length)?;
    *rest = more;
    Some((coded, text))
}

fn is((coded, bytes): Text<'_>, text: &str) -> bool {
    if coded {
        bytes == huffman(text)
    } else {
        bytes == text.as_bytes()
    }
}

/// The Huffman code for the letters of `grpc-status` and for digits.
fn huffman(text: &str) -> Vec<u8> {
    let mut bits: u64 = 0;
    let mut count = 0;
    let mut bytes = Vec::new();
    let mut push = |code: u64, length: u32| {
        bits = bits << length | code;
        count += length;
        while count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
        count
    };
    let mut left = 0;
    for byte in text.bytes() {
        let (code, length) = match byte {
            b'0'..=b'2' => (u64::from(byte - b'0'), 5),
            b'3'..=b'9' => (0x19 + u64::from(byte - b'3'), 6),
            b'a' => (0x3, 5),
            b'c' => (0x4, 5),
            b's' => (0x8, 5),
            b't' => (0x9, 5),
            b'-' => (0x16, 6),
            b'g' => (0x26, 6),
            b'p' => (0x2b, 6),
            b'r' => (0x2c, 6),
            b'u' => (0x2d, 6),
            _ => return Vec::new(),
        };
        left = push(code, length);
    }
    if left > 0 {
        // The last byte is padded with ones.
        push((1 << (8 - left)) - 1, 8 - left);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_in_each_form_of_a_field() {
        // The examples of RFC 7541, C.6.1 and C.6.2, have these codes.
        assert_eq!(huffman("302"), [0x64, 0x02]);
        assert_eq!(huffman("307"), [0x64, 0x0e, 0xff]);
        let literal = |kind: u8, name: &[u8], value: &[u8]| {
            let mut block = vec![kind, name.len() as u8];
            block.extend(name);
            block.push(value.len() as u8);
            block.extend(value);
            block
        };
        let mut table = Table::default();
        // Literals that later blocks cannot reference, one that they can, and references to the
        // whole field and to its name alone.
        assert_eq!(
            table.status(&literal(0x00, b"grpc-status", b"14")),
            Some(14)
        );
        assert_eq!(table.status(&literal(0x10, b"grpc-message", b"4")), None);
        assert_eq!(table.status(&literal(0x40, b"grpc-status", b"4")), Some(4));
        assert_eq!(table.status(&[0x80 | 0x3e]), Some(4));
        assert_eq!(table.status(&[0x40 | 0x3e, 1, b'0']), Some(0));
        assert_eq!(table.status(&[0x80 | 0x3f]), Some(4));
        // `:status: 200`, a change of the table's size, and then the field in Huffman code.
        let (name, value) = (huffman("grpc-status"), huffman("13"));
        let mut block = vec![0x88, 0x3f, 0xe1, 0x1f, 0x00, 0x80 | name.len() as u8];
        block.extend(&name);
        block.push(0x80 | value.len() as u8);
        block.extend(&value);
        assert_eq!(table.status(&block), Some(13));
        // A truncated block has no status.
        for end in 0..block.len() {
            assert_eq!(table.status(&block[..end]), None, "{end}");
        }
    }
}
