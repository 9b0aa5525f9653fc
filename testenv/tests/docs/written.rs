//! A part of a document that a tool writes.

/// The text between two marks. Each mark must occur once, alone on its line. Empty if the whole
/// text is empty.
pub(crate) fn between(text: &str, (begin, end): (&str, &str)) -> Result<String, String> {
    let place = |mark: &str| {
        let mut places = text.lines().enumerate().filter(|(_, line)| *line == mark);
        match (places.next(), places.next()) {
            (Some((place, _)), None) => Ok(place),
            (None, _) => Err(format!("no line {mark}")),
            (Some(_), Some((second, _))) => Err(format!("{mark} again in line {}", second + 1)),
        }
    };
    if text.is_empty() {
        return Ok(String::new());
    }
    let (first, last) = (place(begin)?, place(end)?);
    if last < first {
        return Err(format!("{end} stands before {begin}"));
    }
    let mut kept = String::new();
    for line in text.lines().take(last).skip(first + 1) {
        kept.push_str(line);
        kept.push('\n');
    }
    Ok(kept)
}

#[test]
fn marks_stand_once_and_in_order() {
    let between = |text| between(text, ("<a>", "<b>"));
    assert_eq!(
        between("x\n<a>\none\n\ntwo\n<b>\ny\n").unwrap(),
        "one\n\ntwo\n"
    );
    assert_eq!(between("<a>\n<b>\n").unwrap(), "");
    assert_eq!(between("").unwrap(), "");
    for text in [
        "x\n",
        "<a>\n",
        "<b>\n<a>\n",
        "<a>\n<a>\n<b>\n",
        "x <a>\n<b>\n",
    ] {
        assert!(between(text).is_err(), "{text}");
    }
}
