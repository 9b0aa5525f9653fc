//! SHA-256 (FIPS 180-4), for the digits of LB-30.

/// The first primes: the constants are made of their roots.
fn primes() -> impl Iterator<Item = u32> {
    (2..).filter(|n: &u32| {
        (2..*n)
            .take_while(|d| d * d <= *n)
            .all(|d| !n.is_multiple_of(d))
    })
}

/// The first 32 bits of the fraction of a root.
fn fraction(root: f64) -> u32 {
    (root.fract() * 4_294_967_296.0) as u32
}

/// The digest in 64 lower-case hexadecimal digits.
#[allow(clippy::many_single_char_names)] // as the standard names them
pub(crate) fn hex(text: &str) -> String {
    let constants: Vec<u32> = primes()
        .take(64)
        .map(|n| fraction(f64::from(n).cbrt()))
        .collect();
    let mut state = [0_u32; 8];
    for (slot, prime) in state.iter_mut().zip(primes()) {
        *slot = fraction(f64::from(prime).sqrt());
    }
    let mut bytes = text.as_bytes().to_vec();
    let bits = 8 * bytes.len() as u64;
    bytes.push(0x80);
    while bytes.len() % 64 != 56 {
        bytes.push(0);
    }
    bytes.extend(bits.to_be_bytes());
    for block in bytes.chunks_exact(64) {
        let words = block.chunks_exact(4).map(|four| {
            let four: [u8; 4] = four.try_into().unwrap_or_default();
            u32::from_be_bytes(four)
        });
        let mut words: Vec<u32> = words.collect();
        for place in 16..64 {
            let (early, late) = (words[place - 15], words[place - 2]);
            let one = early.rotate_right(7) ^ early.rotate_right(18) ^ early >> 3;
            let two = late.rotate_right(17) ^ late.rotate_right(19) ^ late >> 10;
            let sum = words[place - 16]
                .wrapping_add(one)
                .wrapping_add(words[place - 7]);
            words.push(sum.wrapping_add(two));
        }
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
        for (constant, word) in constants.iter().zip(&words) {
            let one = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let choice = e & f ^ !e & g;
            let sum = h.wrapping_add(one).wrapping_add(choice);
            let sum = sum.wrapping_add(*constant).wrapping_add(*word);
            let zero = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
            let majority = a & b ^ a & c ^ b & c;
            (h, g, f, e) = (g, f, e, d.wrapping_add(sum));
            (d, c, b, a) = (c, b, a, sum.wrapping_add(zero.wrapping_add(majority)));
        }
        for (slot, value) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *slot = slot.wrapping_add(value);
        }
    }
    let digits: Vec<_> = state.iter().map(|word| format!("{word:08x}")).collect();
    digits.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digests_of_the_standard() {
        for (text, digest) in [
            (
                "",
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            ),
            (
                "abc",
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            ),
        ] {
            assert_eq!(hex(text), digest, "{text:?}");
        }
    }
}
