//! What came of the cases: a line for each that failed, a summary by reason, and the counts.

use std::collections::{BTreeMap, BTreeSet};

use douse::{Error, Unsupported};
use serde::Serialize;

use super::compare::Difference;

/// Cases that take longer are listed, in seconds.
const SLOW: f64 = 10.0;

/// Reasons listed in the summary.
const REASONS: usize = 60;

#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub name: String,
    #[serde(flatten)]
    pub verdict: Verdict,
    pub seconds: f64,
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "result", rename_all = "lowercase")]
pub enum Verdict {
    Passed {
        calls: usize,
        /// Outputs that are right but lie in other strides than PyTorch's.
        other_layouts: usize,
    },
    /// The program or a call was refused.
    Refused {
        reason: String,
        /// What to count the case under: every operator that is missing, or the error without its particulars.
        kinds: Vec<String>,
    },
    /// An answer is wrong, or a call that must be refused was not, or the case panicked.
    Wrong { reason: String, call: Option<usize>, output: Option<usize>, difference: Option<Difference> },
}

impl Outcome {
    pub fn passed(&self) -> bool {
        matches!(self.verdict, Verdict::Passed { .. })
    }
}

impl Verdict {
    pub fn refused(error: &Error) -> Verdict {
        Verdict::Refused { reason: error.message.clone(), kinds: vec![general(&error.message)] }
    }

    pub fn unsupported(missing: &[Unsupported]) -> Verdict {
        let whats: Vec<&str> = missing.iter().map(|m| m.what.as_str()).collect();
        let kinds = missing.iter().map(|m| general(&m.what)).collect();
        Verdict::Refused { reason: format!("not supported: {}", whats.join("; ")), kinds }
    }

    pub fn wrong(reason: String) -> Verdict {
        Verdict::Wrong { reason, call: None, output: None, difference: None }
    }

    pub fn different(output: usize, difference: Difference) -> Verdict {
        let reason = format!("output {output}: {}", difference.message);
        Verdict::Wrong { reason, call: None, output: Some(output), difference: Some(difference) }
    }

    /// Says more about what is wrong.
    pub fn and(self, more: &str) -> Verdict {
        match self {
            Verdict::Wrong { reason, call, output, difference } => {
                Verdict::Wrong { reason: format!("{reason}; {more}"), call, output, difference }
            }
            other => other,
        }
    }

    /// Says in which call.
    pub fn in_call(self, number: usize) -> Verdict {
        match self {
            Verdict::Wrong { reason, output, difference, .. } => {
                Verdict::Wrong { reason: format!("call {number} {reason}"), call: Some(number), output, difference }
            }
            other => other,
        }
    }
}

/// A message without what differs from case to case: numbers, names in quotes, what follows the first line.
fn general(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let line = line.rsplit_once(".pt2: ").map_or(line, |(_, rest)| rest);
    let mut out = String::new();
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            // A digit that is part of a name stays: float32, _foreach_add_1.
            c if c.is_ascii_digit() && !out.ends_with(|p: char| p.is_ascii_alphanumeric() || p == '_') => {
                while chars.peek().is_some_and(char::is_ascii_digit) {
                    chars.next();
                }
                out.push('N');
            }
            c => out.push(c),
        }
    }
    match out.char_indices().nth(160) {
        Some((end, _)) => format!("{}...", out.get(..end).unwrap_or_default()),
        None => out,
    }
}

#[derive(Serialize)]
pub struct Report {
    pub passed: usize,
    pub failed: usize,
    pub refused: usize,
    pub wrong: usize,
    /// Refused, and known to be.
    pub known: usize,
    /// How many cases were refused for each reason; a case counts under each of its reasons.
    pub reasons: BTreeMap<String, usize>,
    pub cases: Vec<Outcome>,
}

impl Report {
    /// `known` are names of cases that may be refused.
    pub fn new(mut cases: Vec<Outcome>, known: &BTreeSet<String>) -> Report {
        let all = cases.len();
        cases.retain(|c| !(matches!(c.verdict, Verdict::Refused { .. }) && known.contains(&c.name)));
        let known = all - cases.len();
        let count = |f: fn(&Verdict) -> bool| cases.iter().filter(|c| f(&c.verdict)).count();
        let passed = count(|v| matches!(v, Verdict::Passed { .. }));
        let refused = count(|v| matches!(v, Verdict::Refused { .. }));
        let wrong = count(|v| matches!(v, Verdict::Wrong { .. }));
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        for case in &cases {
            if let Verdict::Refused { kinds, .. } = &case.verdict {
                for kind in kinds {
                    *reasons.entry(kind.clone()).or_default() += 1;
                }
            }
        }
        Report { passed, failed: refused + wrong, refused, wrong, known, reasons, cases }
    }

    pub fn text(&self) -> String {
        let mut lines = Vec::new();
        for case in &self.cases {
            match &case.verdict {
                Verdict::Passed { .. } => {}
                Verdict::Refused { reason, .. } => {
                    let first = reason.lines().next().unwrap_or_default();
                    lines.push(format!("refused {}: {first}", case.name));
                }
                Verdict::Wrong { reason, .. } => lines.push(format!("wrong {}: {reason}", case.name)),
            }
        }
        let slow = self.cases.iter().filter(|case| case.seconds > SLOW);
        lines.extend(slow.map(|case| format!("slow {}: {:.1} s", case.name, case.seconds)));
        if self.failed > 0 {
            lines.push(String::new());
            lines.push(format!("{} refused, {} wrong", self.refused, self.wrong));
            let mut reasons: Vec<(&String, &usize)> = self.reasons.iter().collect();
            reasons.sort_by_key(|(reason, count)| (std::cmp::Reverse(**count), *reason));
            for (reason, count) in reasons.iter().take(REASONS) {
                lines.push(format!("  {count:5}  {reason}"));
            }
            if reasons.len() > REASONS {
                lines.push(format!("         and {} more reasons", reasons.len() - REASONS));
            }
        }
        if self.known > 0 {
            lines.push(format!("{} refused, as is known", self.known));
        }
        lines.push(format!("{} passed, {} failed", self.passed, self.failed));
        lines.join("\n") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, verdict: Verdict) -> Outcome {
        Outcome { name: name.into(), verdict, seconds: 0.1 }
    }

    #[test]
    fn the_last_line_is_the_counts_and_reasons_are_grouped() {
        let missing = |what: &str| Unsupported { what: what.into(), count: 1, places: vec![] };
        let difference = Difference { message: "largest error 2".into(), error: Some(2.0), index: Some(vec![0]) };
        let known = BTreeSet::from(["f".to_owned(), "a".to_owned()]);
        let report = Report::new(
            vec![
                outcome("a", Verdict::Passed { calls: 1, other_layouts: 0 }),
                outcome("b", Verdict::unsupported(&[missing("aten.x.default"), missing("aten.y.default")])),
                outcome("c", Verdict::unsupported(&[missing("aten.x.default")])),
                outcome("d", Verdict::different(1, difference).in_call(3)),
                outcome("e", Verdict::refused(&Error::invalid_argument("m.pt2: node 17 has 3 arguments\nmore"))),
                outcome("f", Verdict::unsupported(&[missing("aten.z.default")])),
            ],
            &known,
        );
        assert_eq!(
            report.text(),
            "refused b: not supported: aten.x.default; aten.y.default\n\
             refused c: not supported: aten.x.default\n\
             wrong d: call 3 output 1: largest error 2\n\
             refused e: m.pt2: node 17 has 3 arguments\n\
             \n\
             3 refused, 1 wrong\n      \
                 2  aten.x.default\n      \
                 1  aten.y.default\n      \
                 1  node N has N arguments\n\
             1 refused, as is known\n\
             1 passed, 4 failed\n"
        );
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["cases"][3]["result"], "wrong");
        assert_eq!(json["cases"][3]["difference"]["error"], 2.0);
    }
}
