//! Every driver call that a recording makes, failing, over all golden cases with state.

use std::collections::{BTreeMap, BTreeSet};

use douse::{CudaGraph, LoadOptions, Session};
use rayon::prelude::*;

use super::case::{Case, FOLDER, bits, can_compile};
use super::fake::Fake;
use super::{after, open};

/// Sessions of the scenario's rounds: one warms up, records and replays; with the other's turn, graphs get the other's state.
const ROUNDS: [usize; 4] = [0, 0, 1, 0];
/// The first of a case's calls, which each round makes.
const CALLS: usize = 2;
/// Of the driver: unknown error.
const STATUS: u32 = 999;
/// What a driver must not refuse, since only it can give back what it gave.
const RELEASES: [&str; 2] = ["cuGraphDestroy", "cuGraphExecDestroy"];

/// What the recordings of all programs must have called, for the test to mean what it says.
const EXPECTED: [&str; 12] = [
    "cuGraphAddDependencies_v2",
    "cuGraphAddKernelNode_v2",
    "cuGraphAddMemcpyNode",
    "cuGraphAddNode_v2",
    "cuGraphConditionalHandleCreate",
    "cuGraphCreate",
    "cuGraphExecKernelNodeSetParams_v2",
    "cuGraphExecMemcpyNodeSetParams",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphUpload",
    "cuMemGetInfo_v2",
];

/// What a method did.
#[derive(Debug, PartialEq)]
struct Told {
    /// Of each call: outputs, inputs as the program left them, state.
    calls: Vec<[Vec<String>; 3]>,
}

/// Runs a case's calls by a method of its own, and leaves nothing. Returns the reason why it stopped using graphs, too.
fn scenario(case: &Case, fake: &Fake, graph: Option<CudaGraph>) -> (Told, Option<String>) {
    let device = open(fake);
    let load = LoadOptions { cuda_graph: graph, ..LoadOptions::on(&device) };
    let mut method = case.program.load("forward", &load).unwrap();
    let mut sessions = [1, 2].map(Session::with_seed);
    let mut calls = Vec::new();
    for session in ROUNDS {
        std::mem::swap(method.session(), &mut sessions[session]);
        for call in case.calls.iter().take(CALLS) {
            let mut inputs = call.inputs.clone();
            let outputs = match case.run(&mut method, &mut inputs) {
                Ok(outputs) => outputs.iter().map(bits).collect(),
                Err(error) => vec![error.to_string()],
            };
            let states = method.session().states().unwrap();
            let states = states.iter().map(|(name, bytes)| format!("{name} {:?}", &**bytes)).collect();
            calls.push([outputs, inputs.iter().map(bits).collect(), states]);
        }
        std::mem::swap(method.session(), &mut sessions[session]);
    }
    (Told { calls }, method.cuda_graph_report().and_then(|report| report.off))
}

/// How often each function was called since.
fn since(before: &BTreeMap<String, u64>, fake: &Fake) -> BTreeMap<String, u64> {
    let count = |(call, count): (String, u64)| {
        let new = count - before.get(&call).copied().unwrap_or(0);
        (call, new)
    };
    fake.calls().into_iter().map(count).filter(|(_, count)| *count > 0).collect()
}

/// Lets each call of a program's recordings fail; returns their names, and how many runs that took.
fn program(name: &str) -> (BTreeSet<String>, usize) {
    let Some(case) = Case::read(name) else { return Default::default() };
    let fake = Fake::bare();
    let (expected, _) = scenario(&case, &fake, None);
    let plain = fake.calls();
    let (told, off) = scenario(&case, &fake, Some(after(1)));
    assert_eq!((&told, off), (&expected, None), "{name}");
    let mut recordings = since(&plain, &fake);
    recordings.retain(|call, _| !plain.contains_key(call) && !RELEASES.contains(&call.as_str()));
    let mut runs = 0;
    for (call, count) in &recordings {
        for at in BTreeSet::from([1, 2.min(*count), *count]) {
            fake.configure(&format!("fail={call}:{at}:{STATUS}"));
            let (told, off) = scenario(&case, &fake, Some(after(1)));
            assert_eq!(told, expected, "{name}: {call} failed at {at}");
            let off = off.unwrap_or_else(|| panic!("{name}: nobody noticed that {call} failed at {at}"));
            assert!(off.contains(&format!("({STATUS})")), "{name}: {call} at {at}: {off}");
            assert_eq!(fake.left(), "", "{name}: {call} failed at {at}");
            runs += 1;
        }
    }
    (recordings.into_keys().collect(), runs)
}

#[test]
fn whatever_call_of_a_recording_fails_the_method_answers_and_state_is_updated_once() {
    if !can_compile() {
        return;
    }
    let files = std::fs::read_dir(FOLDER).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = files
        .filter_map(|file| Some(file.strip_suffix(".pt2")?.to_owned()))
        .filter(|name| {
            name.starts_with("state_") || ["counter", "key_value_cache", "writes_weights"].contains(&&**name)
        })
        .collect();
    names.sort();
    assert!(names.len() >= 30, "{names:?}");
    let all: Vec<(BTreeSet<String>, usize)> = names.par_iter().with_max_len(1).map(|name| program(name)).collect();
    let calls: BTreeSet<String> = all.iter().flat_map(|(calls, _)| calls.iter().cloned()).collect();
    assert_eq!(calls.iter().map(String::as_str).collect::<Vec<_>>(), EXPECTED);
    let runs: usize = all.iter().map(|(_, runs)| runs).sum();
    println!("{} programs, {runs} faults", names.len());
}
