//! The syntax of names and labels, with reasons in our own words.

/// Letters, digits and `-_.`. The first and the last are letters or digits.
fn is_name(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    ends(text.chars().next())
        && ends(text.chars().next_back())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn is_dns_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(inner) && text.ends_with(inner) && text.chars().all(|c| inner(c) || c == '-')
}

/// A label's value.
pub(super) fn label_value(text: &str) -> Vec<&'static str> {
    let mut wrong = Vec::new();
    if text.len() > 63 {
        wrong.push("longer than 63 bytes");
    }
    if !text.is_empty() && !is_name(text) {
        wrong.push(
            "no label value: letters, digits, -, _ and . with a letter or digit at both ends",
        );
    }
    wrong
}

/// A key of labels, annotations and finalizers.
pub(super) fn qualified(text: &str) -> Vec<&'static str> {
    let mut wrong = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                wrong.push("nothing before the slash");
            } else {
                wrong.extend(subdomain(prefix));
            }
            name
        }
        _ => return vec!["more than one slash"],
    };
    if name.is_empty() {
        wrong.push("no name");
    } else if name.len() > 63 {
        wrong.push("a name longer than 63 bytes");
    }
    if !is_name(name) {
        wrong.push("no name: letters, digits, -, _ and . with a letter or digit at both ends");
    }
    wrong
}

/// A DNS subdomain in lower case.
pub(super) fn subdomain(text: &str) -> Vec<&'static str> {
    let mut wrong = Vec::new();
    if text.len() > 253 {
        wrong.push("longer than 253 bytes");
    }
    if !text.split('.').all(is_dns_label) {
        wrong.push("no DNS name: labels of lower case letters, digits and -, joined by .");
    }
    wrong
}

/// One DNS label.
pub(super) fn dns_label(text: &str) -> Vec<&'static str> {
    let mut wrong = Vec::new();
    if text.len() > 63 {
        wrong.push("longer than 63 bytes");
    }
    if !is_dns_label(text) {
        wrong.push("no DNS label: lower case letters, digits and -");
    }
    wrong
}
