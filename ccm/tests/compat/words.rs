//! Replacements for values that differ between all clusters.

/// Texts and their replacements.
#[derive(Default)]
pub struct Words(Vec<(String, String)>);

impl Words {
    pub fn put(&mut self, word: String, instead: String) {
        if !word.is_empty() && self.0.iter().all(|(known, _)| *known != word) {
            self.0.push((word, instead));
        }
    }

    /// A load balancer's address is any free one. The addresses of a namespace are numbered in the
    /// order of their appearance.
    pub fn put_address(&mut self, namespace: &str, address: String) {
        let family = if address.contains(':') {
            "IPv6"
        } else {
            "IPv4"
        };
        let mut numbers = (1..).map(|number| format!("<{family} {number} of {namespace}>"));
        let free = numbers.find(|instead| self.0.iter().all(|(_, used)| used != instead));
        self.put(address, free.unwrap_or_default());
    }

    /// Puts the longest texts first, because a text may contain another.
    pub fn order(&mut self) {
        self.0
            .sort_by_key(|(word, _)| std::cmp::Reverse(word.len()));
    }

    /// The text with the replacements.
    pub fn of(&self, mut text: String) -> String {
        for (word, instead) in &self.0 {
            if text.contains(word.as_str()) {
                text = text.replace(word.as_str(), instead);
            }
        }
        handles(&text)
    }
}

/// Replaces the mock's handles, such as `lb-14`: their numbers follow the order of creation.
fn handles(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("lb-") {
        let number = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        shown += before;
        shown += if number == 0 { "lb-" } else { "<handle>" };
        rest = &after[number..];
    }
    shown + rest
}

#[test]
fn addresses_of_one_family_are_told_apart() {
    let mut words = Words::default();
    for address in ["192.0.2.1", "192.0.2.12", "2001:db8::1", "192.0.2.1"] {
        words.put_address("web", address.to_owned());
    }
    words.order();
    assert_eq!(
        words.of("192.0.2.12 192.0.2.1 2001:db8::1 lb-14".to_owned()),
        "<IPv4 2 of web> <IPv4 1 of web> <IPv6 1 of web> <handle>"
    );
}
