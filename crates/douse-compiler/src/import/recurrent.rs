//! Recurrent networks, unrolled over their steps: the products of the inputs of all steps are one, taken before.

use douse_core::pointwise::Binary;
use douse_core::sym::Expr;
use douse_core::{Error, Result};
use douse_ir::Value;

use super::args::{Args, Val};
use super::formula::Formula;
use super::importer::{Importer, Row};
use super::matmul::affine;

pub const ROWS: &[Row] = &[
    ("aten.lstm.input", lstm),
    ("aten.gru.input", |i, a| single_state(i, a, Cell::Gru)),
    ("aten.rnn_tanh.input", |i, a| single_state(i, a, Cell::Tanh)),
    ("aten.rnn_relu.input", |i, a| single_state(i, a, Cell::Relu)),
    ("aten.lstm_cell.default", lstm_cell),
    ("aten.gru_cell.default", |i, a| one_step(i, a, Cell::Gru)),
    ("aten.rnn_tanh_cell.default", |i, a| one_step(i, a, Cell::Tanh)),
    ("aten.rnn_relu_cell.default", |i, a| one_step(i, a, Cell::Relu)),
];

/// Steps beyond this would make a program of a size that no longer serves.
const MOST_STEPS: i64 = 4096;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cell {
    Lstm,
    Gru,
    Tanh,
    Relu,
}

/// The weights of one direction of one layer. `project` is LSTM's projection of the hidden state.
struct Weights {
    input: Value,
    hidden: Value,
    input_bias: Option<Value>,
    hidden_bias: Option<Value>,
    project: Option<Value>,
}

/// (hidden state, cell state), [batch, size]; only LSTM has the second.
type State = (Value, Option<Value>);

/// Part `index` of `count` along the last dimension.
fn gate(imp: &mut Importer, x: Value, index: i64, count: i64) -> Result<Formula> {
    let last = imp.b.rank(x) - 1;
    let size = imp.b.shape(x)[last].floor_div(&Expr::int(count));
    imp.b.slice(x, last, &(&size * index), &Expr::int(1), size.clone()).map(Formula::from)
}

impl Weights {
    /// The input's part of the gates.
    fn input_part(&self, imp: &mut Importer, x: Value) -> Result<Value> {
        affine(imp, x, self.input, self.input_bias)
    }

    fn hidden_part(&self, imp: &mut Importer, h: Value) -> Result<Value> {
        affine(imp, h, self.hidden, self.hidden_bias)
    }

    /// The next state, for the input's part of the gates.
    fn step(&self, imp: &mut Importer, cell: Cell, input: Value, state: State) -> Result<State> {
        let (h, c) = state;
        let hidden = self.hidden_part(imp, h)?;
        match cell {
            Cell::Tanh | Cell::Relu => {
                let sum = Formula::from(input) + Formula::from(hidden);
                let next = if cell == Cell::Tanh { sum.tanh() } else { sum.maximum(0.0) };
                Ok((next.build(&mut imp.b)?, None))
            }
            Cell::Gru => {
                let mut gates = Vec::new();
                for i in 0..3 {
                    gates.push((gate(imp, input, i, 3)?, gate(imp, hidden, i, 3)?));
                }
                let reset = (&gates[0].0 + &gates[0].1).sigmoid();
                let update = (&gates[1].0 + &gates[1].1).sigmoid();
                let new = (&gates[2].0 + &gates[2].1 * reset).tanh();
                let next = (Formula::from(h) - &new) * update + &new;
                Ok((next.build(&mut imp.b)?, None))
            }
            Cell::Lstm => {
                let c = c.ok_or_else(|| Error::internal("an LSTM without a cell state"))?;
                let sum = imp.b.binary(Binary::Add, input, hidden)?;
                let mut gates = Vec::new();
                for i in 0..4 {
                    gates.push(gate(imp, sum, i, 4)?);
                }
                let [input, forget, new, output] = [0, 1, 2, 3].map(|i| gates[i].clone());
                let next = forget.sigmoid() * Formula::from(c) + input.sigmoid() * new.tanh();
                let next = next.build(&mut imp.b)?;
                let h = (output.sigmoid() * Formula::from(next).tanh()).build(&mut imp.b)?;
                let h = match self.project {
                    Some(project) => affine(imp, h, project, None)?,
                    None => h,
                };
                Ok((h, Some(next)))
            }
        }
    }

    /// All steps: the outputs [steps, batch, size] and the last state.
    fn run(&self, imp: &mut Importer, cell: Cell, x: Value, mut state: State, reverse: bool) -> Result<(Value, State)> {
        let parts = self.input_part(imp, x)?;
        let steps = imp.b.shape(x)[0].as_int().unwrap_or(0);
        let mut outputs = Vec::new();
        for i in 0..steps {
            let at = if reverse { steps - 1 - i } else { i };
            let part = imp.b.select_index(parts, 0, &Expr::int(at))?;
            state = self.step(imp, cell, part, state)?;
            outputs.push(imp.b.unsqueeze(state.0, 0)?);
        }
        if reverse {
            outputs.reverse();
        }
        Ok((imp.b.concat(&outputs, 0)?, state))
    }
}

/// A network's arguments besides the state.
struct Network {
    cell: Cell,
    /// By layer, then direction.
    weights: Vec<Weights>,
    directions: usize,
}

impl Network {
    fn new(imp: &mut Importer, a: &Args, cell: Cell, projected: bool) -> Result<Network> {
        if a.float_or("dropout", 0.0)? != 0.0 && a.bool_or("train", false)? {
            return Err(a.unsupported("dropout between layers"));
        }
        let params = imp.values(a, "params")?;
        let biases = a.bool_or("has_biases", true)?;
        let directions = if a.bool_or("bidirectional", false)? { 2 } else { 1 };
        let each = 2 + if biases { 2 } else { 0 } + usize::from(projected);
        let layers = a.int("num_layers")? as usize;
        if params.len() != each * layers * directions {
            return Err(a.wrong("params", "of all layers and directions"));
        }
        let weights = params
            .chunks_exact(each)
            .map(|p| Weights {
                input: p[0],
                hidden: p[1],
                input_bias: biases.then(|| p[2]),
                hidden_bias: biases.then(|| p[3]),
                project: projected.then(|| p[each - 1]),
            })
            .collect();
        Ok(Network { cell, weights, directions })
    }

    /// The outputs, in the input's arrangement, and the last states, [layers * directions, batch, size].
    fn run(&self, imp: &mut Importer, a: &Args, hidden: Value, cells: Option<Value>) -> Result<Vec<Value>> {
        let batch_first = a.bool_or("batch_first", false)?;
        let mut x = imp.value(a, "input")?;
        // Without a batch, PyTorch's modules add one before they call the operator.
        if imp.b.rank(x) != 3 {
            return Err(a.unsupported("an input of another rank than 3"));
        }
        if batch_first {
            x = imp.b.transpose(x, 0, 1)?;
        }
        match imp.b.shape(x)[0].as_int() {
            None => return Err(a.unsupported("a sequence length known only at run time")),
            Some(n) if !(1..=MOST_STEPS).contains(&n) => {
                return Err(a.unsupported(format!("a sequence of length {n}")));
            }
            Some(_) => {}
        }
        let (mut last_hidden, mut last_cells) = (Vec::new(), Vec::new());
        for (layer, weights) in self.weights.chunks(self.directions).enumerate() {
            let mut outputs = Vec::new();
            for (direction, weights) in weights.iter().enumerate() {
                let at = Expr::int((layer * self.directions + direction) as i64);
                let h = imp.b.select_index(hidden, 0, &at)?;
                let c = cells.map(|c| imp.b.select_index(c, 0, &at)).transpose()?;
                let (output, (h, c)) = weights.run(imp, self.cell, x, (h, c), direction == 1)?;
                outputs.push(output);
                last_hidden.push(imp.b.unsqueeze(h, 0)?);
                if let Some(c) = c {
                    last_cells.push(imp.b.unsqueeze(c, 0)?);
                }
            }
            x = imp.b.concat(&outputs, 2)?;
        }
        let output = if batch_first { imp.b.transpose(x, 0, 1)? } else { x };
        let mut results = vec![output, imp.b.concat(&last_hidden, 0)?];
        if !last_cells.is_empty() {
            results.push(imp.b.concat(&last_cells, 0)?);
        }
        Ok(results)
    }
}

fn lstm(imp: &mut Importer, a: &Args) -> Result<Val> {
    let [hidden, cells] = states(imp, a)?;
    // A projected hidden state is of another size than the cell's.
    let projected = imp.b.shape(hidden).last() != imp.b.shape(cells).last();
    let network = Network::new(imp, a, Cell::Lstm, projected)?;
    Ok(network.run(imp, a, hidden, Some(cells))?.into())
}

fn states(imp: &mut Importer, a: &Args) -> Result<[Value; 2]> {
    <[Value; 2]>::try_from(imp.values(a, "hx")?).map_err(|_| a.wrong("hx", "two tensors"))
}

fn single_state(imp: &mut Importer, a: &Args, cell: Cell) -> Result<Val> {
    let hidden = imp.value(a, "hx")?;
    let network = Network::new(imp, a, cell, false)?;
    Ok(network.run(imp, a, hidden, None)?.into())
}

fn cell_weights(imp: &mut Importer, a: &Args) -> Result<Weights> {
    Ok(Weights {
        input: imp.value(a, "w_ih")?,
        hidden: imp.value(a, "w_hh")?,
        input_bias: imp.opt_value(a, "b_ih")?,
        hidden_bias: imp.opt_value(a, "b_hh")?,
        project: None,
    })
}

fn lstm_cell(imp: &mut Importer, a: &Args) -> Result<Val> {
    let [h, c] = states(imp, a)?;
    let (x, weights) = (imp.value(a, "input")?, cell_weights(imp, a)?);
    let part = weights.input_part(imp, x)?;
    let (h, c) = weights.step(imp, Cell::Lstm, part, (h, Some(c)))?;
    Ok(std::iter::once(h).chain(c).collect::<Vec<_>>().into())
}

fn one_step(imp: &mut Importer, a: &Args, cell: Cell) -> Result<Val> {
    let (x, h, weights) = (imp.value(a, "input")?, imp.value(a, "hx")?, cell_weights(imp, a)?);
    let part = weights.input_part(imp, x)?;
    Ok(weights.step(imp, cell, part, (h, None))?.0.into())
}
