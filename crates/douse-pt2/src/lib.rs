//! Reads the .pt2 archives that torch.export saves
