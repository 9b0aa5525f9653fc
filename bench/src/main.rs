//! Side by side with an upstream Go CCM: the same API server, machine and cloud latency, in one run. `make bench`.
//!
//! Every scenario gets a fresh control plane for each contender. The Go CCM is upstream's `app` package, unchanged, with a cloud in
//! memory; ours is `ccm` with `provider-mock`; each call of either cloud takes 50 ms.

mod contender;
mod scenarios;

use std::process::ExitCode;

use comfy_table::{Table, presets::ASCII_MARKDOWN};

use contender::Kind;

#[tokio::main]
async fn main() -> ExitCode {
    // Names of scenarios to run, all without any; `ours` leaves the Go CCM out.
    let mut chosen: Vec<String> = std::env::args().skip(1).collect();
    let ours_only = chosen.iter().any(|word| word == "ours");
    chosen.retain(|word| word != "ours");
    if let Some(unknown) = chosen
        .iter()
        .find(|word| scenarios::ALL.iter().all(|it| it.name != **word))
    {
        let names: Vec<_> = scenarios::ALL.iter().map(|it| it.name).collect();
        eprintln!(
            "{unknown:?} is no scenario; there are {} (and `ours`)",
            names.join(", ")
        );
        return ExitCode::from(2);
    }
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header([
        "measured",
        "Go CCM",
        "Go CCM, tuned",
        "ccm",
        "Go : ccm",
    ]);
    for scenario in scenarios::ALL {
        if !chosen.is_empty() && !chosen.iter().any(|name| name == scenario.name) {
            continue;
        }
        let mut columns = Vec::new();
        for kind in [Kind::Go, Kind::GoTuned, Kind::Ours] {
            if !scenario.contenders.contains(&kind) || (ours_only && kind != Kind::Ours) {
                columns.push(None);
                continue;
            }
            eprintln!("{}: {} ...", scenario.name, kind.name());
            match (scenario.run)(kind).await {
                Ok(figures) => columns.push(Some(figures)),
                Err(error) => {
                    eprintln!("{} with {} failed: {error:#}", scenario.name, kind.name());
                    return ExitCode::FAILURE;
                }
            }
        }
        for (index, what) in scenario.measured.iter().enumerate() {
            let figure = |column: usize| columns[column].as_ref().map(|figures| figures[index]);
            let shown = |column: usize| figure(column).map_or("-".to_owned(), number);
            let ratio = match (figure(0).or(figure(1)), figure(2)) {
                (Some(theirs), Some(ours)) if ours > 0.0 => format!("{:.1}", theirs / ours),
                _ => "-".to_owned(),
            };
            table.add_row([(*what).to_owned(), shown(0), shown(1), shown(2), ratio]);
        }
    }
    println!("{table}");
    ExitCode::SUCCESS
}

fn number(figure: f64) -> String {
    if figure.is_nan() {
        // There was nothing left to measure it with.
        "-".to_owned()
    } else if figure.fract() == 0.0 {
        format!("{figure:.0}")
    } else {
        format!("{figure:.2}")
    }
}
