//! Measures the `ccm` and an upstream Go CCM in one run, on the same machine, with equal API
//! servers and the same cloud latency. `make bench` runs it.
//!
//! Every scenario gets a fresh control plane for each contender and each run. The Go CCM is
//! upstream's `app` package, unchanged, with a cloud in memory; ours is `ccm` with `provider-mock`.
//! Each call of Go's cloud takes 50 ms. Each RPC of our provider except Probe and GetProviderInfo
//! takes 50 ms too, for any number of Nodes, as if its cloud answered for many at once. In
//! `nodes-1000-each` the provider asks its cloud about each Node separately. There the ccm has at
//! most 32 calls in flight, and the tuned Go CCM 64. The scenario `clouds` has no Go CCM and runs
//! once: it counts the calls that the vendors' test APIs get.

mod clouds;
mod contender;
mod scenarios;

use std::process::ExitCode;

use comfy_table::{Table, presets::ASCII_MARKDOWN};

use contender::Kind;

/// How often each scenario except `clouds` runs, unless `once` is given. The output has the median,
/// the minimum and the maximum.
const RUNS: usize = 3;

#[tokio::main]
async fn main() -> ExitCode {
    // The names of the scenarios to run; without one, all run. `ours` leaves out the Go CCM, and
    // `once` runs each scenario once instead of three times.
    let mut chosen: Vec<String> = std::env::args().skip(1).collect();
    let mut option = |name: &str| {
        let given = chosen.iter().any(|word| word == name);
        chosen.retain(|word| word != name);
        given
    };
    let ours_only = option("ours");
    let runs = if option("once") { 1 } else { RUNS };
    if let Some(unknown) = chosen
        .iter()
        .find(|word| *word != clouds::NAME && scenarios::ALL.iter().all(|it| it.name != **word))
    {
        let mut names: Vec<_> = scenarios::ALL.iter().map(|it| it.name).collect();
        names.push(clouds::NAME);
        eprintln!(
            "{unknown:?} is no scenario; the scenarios are {} (and `ours`, `once`)",
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
            let mut all = Vec::new();
            for run in 1..=runs {
                eprintln!(
                    "{}: {}, run {run} of {runs} ...",
                    scenario.name,
                    kind.name()
                );
                match (scenario.run)(kind).await {
                    Ok(figures) => all.push(figures),
                    Err(error) => {
                        eprintln!("{} with {} failed: {error:#}", scenario.name, kind.name());
                        return ExitCode::FAILURE;
                    }
                }
            }
            columns.push(Some(all));
        }
        for (index, what) in scenario.measured.iter().enumerate() {
            let spread = |column: usize| {
                let runs = columns[column].as_ref()?;
                Spread::of(runs.iter().map(|figures| figures[index]))
            };
            let shown = |column: usize| spread(column).map_or("-".to_owned(), |it| it.shown());
            let ratio = match (spread(0).or(spread(1)), spread(2)) {
                (Some(theirs), Some(ours)) if ours.middle > 0.0 => {
                    format!("{:.1}", theirs.middle / ours.middle)
                }
                _ => "-".to_owned(),
            };
            table.add_row([(*what).to_owned(), shown(0), shown(1), shown(2), ratio]);
        }
    }
    if table.row_iter().next().is_some() {
        println!("{table}");
    }
    if (chosen.is_empty() || chosen.iter().any(|name| name == clouds::NAME))
        && let Err(error) = clouds::run().await
    {
        eprintln!("{} failed: {error:#}", clouds::NAME);
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// The values of one figure in all runs.
#[derive(Debug, PartialEq)]
struct Spread {
    least: f64,
    middle: f64,
    most: f64,
}

impl Spread {
    /// `None`: no run has a number for this figure.
    fn of(figures: impl Iterator<Item = f64>) -> Option<Self> {
        let mut figures: Vec<f64> = figures.filter(|figure| !figure.is_nan()).collect();
        figures.sort_by(f64::total_cmp);
        Some(Self {
            least: *figures.first()?,
            middle: *figures.get(figures.len() / 2)?,
            most: *figures.last()?,
        })
    }

    fn shown(&self) -> String {
        let middle = number(self.middle);
        if self.most <= self.least {
            middle
        } else {
            format!("{middle} ({} to {})", number(self.least), number(self.most))
        }
    }
}

fn number(figure: f64) -> String {
    if figure.fract() == 0.0 {
        format!("{figure:.0}")
    } else {
        format!("{figure:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_shown_with_its_spread() {
        let shown = |figures: &[f64]| Some(Spread::of(figures.iter().copied())?.shown());
        assert_eq!(
            shown(&[3.0, 2.25, 2.5]).as_deref(),
            Some("2.50 (2.25 to 3)")
        );
        assert_eq!(shown(&[10.0, 10.0, 10.0]).as_deref(), Some("10"));
        assert_eq!(shown(&[f64::NAN, 1.0]).as_deref(), Some("1"));
        assert_eq!(shown(&[f64::NAN]), None);
    }
}
