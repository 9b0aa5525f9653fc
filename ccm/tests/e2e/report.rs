//! Measurements for people, printed at the end.

use std::time::{Duration, Instant};

pub struct Report {
    title: &'static str,
    since: Instant,
    began: Instant,
    rows: Vec<(String, Duration)>,
    rights: String,
}

impl Report {
    pub fn new(title: &'static str) -> Self {
        Self {
            title,
            since: Instant::now(),
            began: Instant::now(),
            rows: Vec::new(),
            rights: String::new(),
        }
    }

    /// The next lap begins now.
    pub fn start(&mut self) {
        self.since = Instant::now();
    }

    /// Records the time since the last start or lap.
    pub fn lap(&mut self, what: &str) {
        if !what.is_empty() {
            eprintln!("{:6.1} s  {what}", self.began.elapsed().as_secs_f64());
            self.rows.push((what.to_owned(), self.since.elapsed()));
        }
        self.start();
    }

    /// Records a measurement from elsewhere.
    pub fn row(&mut self, what: &str, took: Duration) {
        self.rows.push((what.to_owned(), took));
    }

    /// Records the ccm's requests to the API server.
    pub fn rights(&mut self, text: String) {
        self.rights = text;
    }

    pub fn print(&self) {
        let title = self.title;
        let took = self.began.elapsed().as_secs_f64();
        eprintln!("\n{title}: {took:.0} s\n\n| what | seconds |\n|---|---|");
        for (what, took) in &self.rows {
            eprintln!("| {what} | {:.1} |", took.as_secs_f64());
        }
        eprintln!("\n{}", self.rights);
    }
}
