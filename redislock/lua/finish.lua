-- Ends a script that uses common.lua. That file and the script's own text are the function general.

local done, answer = pcall(general)
if not done then answer = failure(answer) end
return answer
