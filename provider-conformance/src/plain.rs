//! Converts Rust's debug form, which every message has, for people: it drops `Some(..)`, empty
//! fields and type names.

/// `LookupRequest { cluster: None, nodes: [Node { name: "a", uid: "" }] }` becomes
/// `{nodes: [{name: "a"}]}`. Other text stays as it is, except that the word `None` becomes `none`.
pub(super) fn plain(text: &str) -> String {
    let mut reader = Reader { rest: text };
    let mut out = String::with_capacity(text.len());
    let mut word = false;
    while let Some(next) = reader.rest.chars().next() {
        if next == '"' {
            out.push_str(reader.quoted());
            word = false;
        } else if !word && next.is_ascii_uppercase() && reader.is_value() {
            out.push_str(&reader.value().text);
        } else {
            word = next.is_alphanumeric() || matches!(next, '_' | '.' | '-');
            out.push(next);
            reader.skip(next.len_utf8());
        }
    }
    out
}

/// A converted value.
struct Value {
    text: String,
    /// Whether no field in it is set.
    empty: bool,
}

/// The rest of the text. A text that was cut off can end anywhere.
struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    fn spaces(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, token: char) -> bool {
        let there = self.rest.starts_with(token);
        if there {
            self.skip(token.len_utf8());
        }
        there
    }

    fn name(&self) -> &'a str {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        &self.rest[..end]
    }

    /// A string in quotes, with its escapes.
    fn quoted(&mut self) -> &'a str {
        let mut escaped = false;
        let mut end = self.rest.len();
        for (at, c) in self.rest.char_indices().skip(1) {
            if c == '"' && !escaped {
                end = at + 1;
                break;
            }
            escaped = c == '\\' && !escaped;
        }
        let quoted = &self.rest[..end];
        self.skip(end);
        quoted
    }

    /// Whether a struct or a variant of `Option` or `Result` begins here.
    fn is_value(&self) -> bool {
        let name = self.name();
        let after = &self.rest[name.len()..];
        match name {
            "None" => true,
            "Some" | "Ok" | "Err" => after.starts_with('('),
            _ => match after.strip_prefix(" {") {
                None => false,
                Some(fields) => {
                    let fields = Reader {
                        rest: fields.trim_start(),
                    };
                    fields.rest.starts_with('}')
                        || fields.rest[fields.name().len()..].starts_with(':')
                }
            },
        }
    }

    fn value(&mut self) -> Value {
        self.spaces();
        if self.rest.starts_with('"') {
            let text = self.quoted().to_owned();
            let empty = text == "\"\"";
            return Value { text, empty };
        }
        if self.eat('[') {
            let items = self.items(']');
            return Value {
                empty: items.is_empty(),
                text: format!("[{}]", items.join(", ")),
            };
        }
        if self.eat('{') {
            return self.fields();
        }
        let name = self.name();
        let after = &self.rest[name.len()..];
        if name == "None" {
            self.skip(name.len());
            return Value {
                text: "none".into(),
                empty: true,
            };
        }
        let typed = name.starts_with(|c: char| c.is_ascii_uppercase());
        if typed && after.starts_with(" {") {
            self.skip(name.len() + 2);
            return Value {
                empty: false,
                ..self.fields()
            };
        }
        if typed && after.starts_with('(') {
            self.skip(name.len() + 1);
            let inner = self.items(')').join(", ");
            // A field that is set is shown, even if its value is empty.
            let text = match name {
                "Some" | "Ok" | "Err" => inner,
                variant => format!("{} {inner}", snake(variant)),
            };
            return Value { text, empty: false };
        }
        let end = self
            .rest
            .find([',', ')', ']', '}'])
            .unwrap_or(self.rest.len());
        let text = self.rest[..end].trim().to_owned();
        self.skip(end);
        Value { text, empty: false }
    }

    /// Values up to this character.
    fn items(&mut self, close: char) -> Vec<String> {
        let mut items = Vec::new();
        loop {
            self.spaces();
            if self.rest.is_empty() || self.eat(close) {
                return items;
            }
            items.push(self.value().text);
            self.spaces();
            // Text in another format ends the values.
            if !self.eat(',') && !self.rest.starts_with(close) {
                return items;
            }
        }
    }

    /// The fields of a struct, or the entries of a map.
    fn fields(&mut self) -> Value {
        let mut fields = Vec::new();
        loop {
            self.spaces();
            if self.rest.is_empty() || self.eat('}') {
                break;
            }
            let key = if self.rest.starts_with('"') {
                self.quoted()
            } else {
                let name = self.name();
                self.skip(name.len());
                name
            };
            if self.eat(':') {
                let value = self.value();
                if !value.empty {
                    fields.push(format!("{key}: {}", value.text));
                }
            } else {
                // An element of a set, or two dots for omitted fields.
                let end = self.rest.find([',', '}']).unwrap_or(self.rest.len());
                fields.push(format!("{key}{}", self.rest[..end].trim_end()));
                self.skip(end);
            }
            self.spaces();
            if !self.eat(',') && !self.rest.starts_with('}') {
                break;
            }
        }
        Value {
            empty: fields.is_empty(),
            text: format!("{{{}}}", fields.join(", ")),
        }
    }
}

/// `InternalIp` as `internal_ip`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for (at, c) in name.char_indices() {
        if c.is_ascii_uppercase() && at > 0 {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use cloud_provider_api::v1alpha1 as pb;

    use super::*;

    #[test]
    fn a_message_is_shown_without_what_only_rust_needs() {
        let request = pb::LookupInstancesRequest {
            cluster: Some(pb::ClusterRef {
                name: "a, {b} \"c\"".into(),
                owner_id: String::new(),
            }),
            nodes: vec![pb::NodeView {
                name: "node-1".into(),
                provider_id: Some("mock://1".into()),
                ..Default::default()
            }],
            ..Default::default()
        };
        let text = format!("LookupInstances: {request:?}");
        assert_eq!(
            plain(&text),
            r#"LookupInstances: {cluster: {name: "a, {b} \"c\""}, nodes: [{name: "node-1", provider_id: "mock://1"}]}"#
        );
        let answer = pb::InitializeResponse {
            outcome: Some(pb::initialize_response::Outcome::Initialized(
                pb::Initialized::default(),
            )),
        };
        assert_eq!(
            plain(&format!("{answer:?}")),
            "{outcome: initialized {read_only: false}}"
        );
        // Converting twice changes nothing.
        assert_eq!(plain(&plain(&text)), plain(&text));
    }

    #[test]
    fn words_stay_as_they_are_and_what_was_cut_off_is_shown_as_far_as_it_goes() {
        for text in [
            "Ensure with a deadline of 100ms, then `done` (LB-12): Get, [1] {x} and \"Some(thing)\"",
            "gRPC status Unavailable: None of them",
            "",
            "GetProviderInfo {",
        ] {
            let expected = text.replace(": None of", ": none of");
            assert_eq!(plain(text), expected);
        }
        assert_eq!(plain("Some(\"h-1\")"), "\"h-1\"");
        assert_eq!(plain("{\"uid\": 1}"), "{\"uid\": 1}");
        let whole = "Route { name: \"r\", cluster: Some(ClusterRef { name: \"a\" }), keys: {\"k\": \"v\"}, at: Some(1.5) }";
        for end in 0..whole.len() {
            let shown = plain(&whole[..end]);
            assert!(shown.len() <= whole.len() + 2, "{shown}");
        }
        assert_eq!(
            plain(whole),
            "{name: \"r\", cluster: {name: \"a\"}, keys: {\"k\": \"v\"}, at: 1.5}"
        );
    }
}
