mod state;
mod table;
mod wheel;
